//! Traits whose calls are records: published, read as YAML, and dispatched to a component.

use std::borrow::Cow;
use std::collections::BTreeMap;

use millstream_wire::{
    Adapter, Call, CallError, Cause, Decimal, Dispatch, Interface, Packer, Publisher, Record,
    Recorder, Refused, Schema, Timestamp, Transport, Wire, WireError, interface, packed, unpacked,
};

#[derive(Debug, Clone, PartialEq, Wire)]
struct Everything<'a> {
    flag: bool,
    tiny: i8,
    wide: u64,
    ratio: f32,
    letter: char,
    text: &'a str,
    owned: String,
    either: Cow<'a, str>,
    raw: &'a [u8],
    copy: Vec<u8>,
    when: Timestamp,
    price: Decimal<'a>,
    #[wire(alias = "memo", default)]
    note: Option<&'a str>,
    list: Vec<Leg<'a>>,
    map: BTreeMap<u16, Vec<&'a str>>,
    #[wire(rename = "sideOfMarket")]
    side: Side,
    tree: Tree,
    id: Id,
}

#[derive(Debug, Clone, PartialEq, Wire)]
struct Leg<'l> {
    symbol: &'l str,
    #[wire(default = 7)]
    quantity: u32,
}

#[derive(Debug, Clone, PartialEq, Wire)]
enum Side {
    Buy,
    Sell { short: bool },
    Cross(u8, char),
}

#[derive(Debug, Clone, PartialEq, Wire)]
struct Tree {
    branches: Vec<Tree>,
}

#[derive(Debug, Clone, Copy, PartialEq, Wire)]
struct Id(u64);

fn everything() -> Everything<'static> {
    Everything {
        flag: true,
        tiny: -8,
        wide: u64::MAX,
        ratio: 0.1,
        letter: 'é',
        text: "borrowed",
        owned: "owned".into(),
        either: "either".into(),
        raw: b"\x00\xff",
        copy: vec![1, 2, 3],
        when: Timestamp(1_795_253_400_000_000_001),
        price: Decimal::new("72.50").unwrap(),
        note: None,
        list: vec![
            Leg {
                symbol: "A",
                quantity: 1,
            },
            Leg {
                symbol: "B",
                quantity: 2,
            },
        ],
        map: BTreeMap::from([(3, vec!["x", "y"]), (1, vec![])]),
        side: Side::Sell { short: true },
        tree: Tree {
            branches: vec![Tree { branches: vec![] }],
        },
        id: Id(9),
    }
}

const EVERYTHING: &str = r#"take:
  flag: true
  tiny: -8
  wide: 18446744073709551615
  ratio: 0.1
  letter: é
  text: borrowed
  owned: owned
  either: either
  raw: AP8=
  copy: AQID
  when: 2026-11-21T09:30:00.000000001Z
  price: 72.50
  list:
    - symbol: A
      quantity: 1
    - symbol: B
      quantity: 2
  map:
    1: []
    3:
      - x
      - y
  sideOfMarket:
    Sell:
      short: true
  tree:
    branches:
      - branches: []
  id: 9
"#;

#[interface(version = 3, rename = "Desk")]
trait Trading {
    fn take(&mut self, everything: &Everything<'_>);
    /// Arguments of all ways to pass them; `out` and `values` are names that the attribute's own code might use.
    #[wire(alias = "old_many")]
    fn many(
        &mut self,
        out: &str,
        values: &[Leg<'_>],
        raw: &[u8],
        side: Side,
        size_max: Option<u8>,
    ) -> Result<(), Cause>;
    fn nothing(&mut self);
}

/// Notes each call as text.
#[derive(Default)]
struct Notes(Vec<String>);

impl Trading for Notes {
    fn take(&mut self, everything: &Everything<'_>) {
        self.0.push(format!("{everything:?}"));
    }
    fn many(
        &mut self,
        out: &str,
        values: &[Leg<'_>],
        raw: &[u8],
        side: Side,
        size_max: Option<u8>,
    ) -> Result<(), Cause> {
        if out.is_empty() {
            return Err("out is empty".into());
        }
        self.0
            .push(format!("{out} {values:?} {raw:?} {side:?} {size_max:?}"));
        Ok(())
    }
    fn nothing(&mut self) {
        self.0.push("nothing".into());
    }
}

fn schema() -> Schema {
    <dyn Trading as Interface>::schema().unwrap()
}

fn dispatch(body: &[u8], component: &mut impl Trading) -> Result<(), CallError> {
    let Record::Call(_, head, arguments) = Record::read(body)? else {
        panic!("a call is a call")
    };
    <dyn Trading as Dispatch<_>>::dispatch(component, head.method, arguments)
}

#[test]
fn a_value_of_every_type_comes_back_as_it_was() {
    let value = everything();
    assert_eq!(
        unpacked::<Everything<'_>>(&packed(&value).unwrap()).unwrap(),
        value
    );
    for side in [Side::Buy, Side::Sell { short: false }, Side::Cross(9, 'x')] {
        assert_eq!(unpacked::<Side>(&packed(&side).unwrap()).unwrap(), side);
    }
}

#[test]
fn what_a_publisher_packs_is_what_the_schema_says() {
    let calls = Recorder::default();
    let mut trading = Publisher::<dyn Trading, _>::new(calls.clone()).unwrap();
    trading.take(&everything());
    assert_eq!(calls.text(), EVERYTHING);
    let call = Call::from_text(EVERYTHING, &schema()).unwrap();
    let mut notes = Notes::default();
    dispatch(&call.to_bytes(&schema(), None).unwrap(), &mut notes).unwrap();
    assert_eq!(notes.0, [format!("{:?}", everything())]);
}

#[test]
fn arguments_are_passed_as_the_method_takes_them() {
    let calls = Recorder::default();
    let mut trading = Publisher::<dyn Trading, _>::new(calls.clone()).unwrap();
    let legs = [Leg {
        symbol: "A",
        quantity: 5,
    }];
    trading
        .many("out", &legs, b"\x01", Side::Cross(2, 'c'), None)
        .unwrap();
    trading.nothing();
    let mut direct = Notes::default();
    let mut dispatched = Notes::default();
    direct
        .many("out", &legs, b"\x01", Side::Cross(2, 'c'), None)
        .unwrap();
    direct.nothing();
    for call in calls.take() {
        dispatch(&call.to_bytes(&schema(), None).unwrap(), &mut dispatched).unwrap();
    }
    assert_eq!(dispatched.0, direct.0);
}

#[test]
fn a_failing_component_and_a_bad_record_are_distinguished() {
    let text = "many: {out: '', values: [], raw: '', side: Buy}";
    let call = Call::from_text(text, &schema()).unwrap();
    let body = call.to_bytes(&schema(), None).unwrap();
    let mut notes = Notes::default();
    let error = dispatch(&body, &mut notes).unwrap_err();
    assert!(matches!(error, CallError::Component { .. }));
    assert_eq!(format!("{error:?}"), "many: out is empty");

    let cut = &body[..body.len() - 2];
    let error = dispatch(cut, &mut notes).unwrap_err();
    assert!(matches!(error, CallError::Record(_)));
    assert!(error.to_string().starts_with("many.side: byte "), "{error}");

    let unknown =
        <dyn Trading as Dispatch<_>>::dispatch(&mut notes, 9, millstream_wire::Unpacker::new(&[]));
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "interface Desk has no method 9"
    );
}

#[test]
fn the_schema_has_names_aliases_and_defaults() {
    let schema = schema();
    assert_eq!((schema.interface(), schema.version()), ("Desk", 3));
    assert_eq!(schema.method_named("old_many").unwrap().0, 2);
    let take = &schema.methods()[0].arguments[0];
    assert_eq!(schema.type_name(&take.ty), "Everything");
    let short = EVERYTHING
        .replace("      quantity: 1\n", "")
        .replace("  text: borrowed\n", "  text: borrowed\n  memo: hi\n");
    let text = Call::from_text(&short, &schema).unwrap().to_text();
    assert!(
        text.contains("quantity: 7") && text.contains("note: hi"),
        "{text}"
    );
}

/// The same interface as another version of a program has it.
mod earlier {
    use super::Wire;

    #[derive(Wire)]
    pub struct Leg<'l> {
        pub symbol: &'l str,
    }

    #[super::interface]
    pub trait Legs {
        fn add(&mut self, leg: &Leg<'_>, gone: i64);
    }
}

#[interface(version = 2)]
trait Legs {
    fn first(&mut self);
    #[wire(alias = "add")]
    fn added(&mut self, leg: &Leg<'_>, #[wire(default = 'x')] venue: char) -> Result<(), Cause>;
}

#[test]
fn calls_of_an_earlier_version_are_dispatched() {
    struct Sum(u32);
    impl Legs for Sum {
        fn first(&mut self) {}
        fn added(&mut self, leg: &Leg<'_>, venue: char) -> Result<(), Cause> {
            assert_eq!((leg.symbol, venue), ("VOD.L", 'x'));
            self.0 += leg.quantity;
            Ok(())
        }
    }
    let old = <dyn earlier::Legs as Interface>::schema().unwrap();
    let new = <dyn Legs as Interface>::schema().unwrap();
    let mut adapter = Adapter::new(&old, &new).unwrap();
    let body = Call::from_text("add: {leg: {symbol: VOD.L}, gone: 5}", &old).unwrap();
    let body = body.to_bytes(&old, None).unwrap();
    let Ok(Record::Call(_, head, arguments)) = Record::read(&body) else {
        panic!("a call is a call")
    };
    let (method, arguments) = adapter.adapt(head.method, arguments).unwrap().unwrap();
    let mut sum = Sum(0);
    <dyn Legs as Dispatch<_>>::dispatch(&mut sum, method, arguments).unwrap();
    assert_eq!(sum.0, 7);
}

/// Takes `left` calls, and refuses those that are longer than `longest`.
struct Limited {
    left: usize,
    longest: usize,
}

impl Limited {
    fn to(left: usize) -> Self {
        Limited {
            left,
            longest: usize::MAX,
        }
    }
}

impl Transport for Limited {
    fn announce(&mut self, _schema: &std::sync::Arc<Schema>) -> Result<(), Cause> {
        Ok(())
    }
    fn publish(
        &mut self,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> Result<(), Box<WireError>>,
    ) -> Result<(), Cause> {
        self.left = self.left.checked_sub(1).ok_or("the disk is full")?;
        let packed = millstream_wire::pack(size_max, write)?;
        if packed.len() <= self.longest {
            Ok(())
        } else {
            Err(Refused(format!("{} bytes", packed.len()).into()).into())
        }
    }
}

#[test]
fn a_lost_call_is_reported_and_leaves_no_gap() {
    let mut trading = Publisher::<dyn Trading, _>::new(Limited::to(1)).unwrap();
    trading.nothing();
    trading.check().unwrap();
    trading.nothing();
    trading.transport().left = 5;
    trading.nothing();
    assert_eq!(trading.transport().left, 5);
    assert_eq!(
        format!("{:?}", trading.check().unwrap_err()),
        "2 calls were not published; the first: the disk is full"
    );
    trading.nothing();
    assert_eq!(trading.transport().left, 4);

    trading.transport().left = 0;
    let error = trading.many("x", &[], b"", Side::Buy, None).unwrap_err();
    assert_eq!(error.to_string(), "the disk is full");
    trading.check().unwrap();
}

#[test]
fn a_call_that_is_refused_is_lost_alone() {
    let mut names = Publisher::<dyn Names, _>::new(Limited {
        left: 10,
        longest: 100,
    })
    .unwrap();
    names.name("short");
    names.check().unwrap();
    names.name(&"long".repeat(50));
    names.name("short");
    assert!(names.check().unwrap_err().to_string().ends_with(" bytes"));
    names.name("short");
    names.check().unwrap();
}

#[test]
fn a_loss_is_reported_where_nothing_asks() {
    const NAME: &str = "interfaces::a_loss_is_reported_where_nothing_asks";
    if std::env::var_os("LOSES_CALLS").is_some() {
        let mut trading = Publisher::<dyn Trading, _>::new(Limited::to(1)).unwrap();
        (0..4).for_each(|_| trading.nothing());
        return;
    }
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let program = program.args(["--exact", NAME, "--nocapture"]);
    let ended = program.env("LOSES_CALLS", "1").output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{said}");
    let first = "Trading was not published: the disk is full; later ones are not published either";
    let all = "Trading were not published, and nothing has asked for that (`Publisher::check`); the first: the disk is full";
    assert!(said.contains(first) && said.contains(all), "{said}");
    assert!(said.contains("3 calls of "), "{said}");
}

#[interface]
trait Names {
    fn name(&mut self, name: &str);
}

mod one {
    #[derive(super::Wire)]
    pub struct Same;
}
mod two {
    #[derive(super::Wire)]
    pub struct Same;
}

#[interface]
trait Clash {
    fn both(&mut self, one: &one::Same, two: &two::Same);
}

#[test]
fn two_types_of_one_name_are_refused() {
    let error = <dyn Clash as Interface>::schema().unwrap_err().to_string();
    let expected = "interface Clash: wire::interfaces::two::Same and wire::interfaces::one::Same have the same name";
    assert_eq!(error, expected);
}
