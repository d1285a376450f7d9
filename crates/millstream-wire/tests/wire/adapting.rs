//! Records of one version of an interface, read with another.

use millstream_wire::{
    Adapter, Call, Definition, Field, Method, Record, Schema, Shape, Type, Variant,
};

use crate::random::{Random, schema, values};

/// An interface of one method `place(order: Order, count: COUNT)`.
fn version(version: u32, order: Vec<Field>, side: Vec<Variant>, count: Type) -> Schema {
    let order = Definition {
        name: "Order".into(),
        shape: Shape::Struct(order),
    };
    let side = Definition {
        name: "Side".into(),
        shape: Shape::Enum(side),
    };
    let arguments = vec![
        Field::new("orders", Type::List(Box::new(Type::Named(0)))),
        Field::new("count", count),
    ];
    let methods = vec![Method::new("place", arguments)];
    Schema::new("Orders", version, methods, vec![order, side]).unwrap()
}

fn first() -> Schema {
    let order = vec![
        Field::new("symbol", Type::Str),
        Field::new(
            "obsolete",
            Type::Map(Box::new(Type::Str), Box::new(Type::F64)),
        ),
        Field::new("price", Type::F32),
        Field::new("side", Type::Named(1)),
    ];
    let side = vec![
        Variant::new("Buy", vec![]),
        Variant::new("Sell", vec![Field::new("short", Type::Bool)]),
        Variant::new("Hold", vec![]),
    ];
    version(1, order, side, Type::U8)
}

fn second() -> Schema {
    let order = vec![
        Field::new("ticker", Type::Str).aliases(&["symbol"]),
        Field::new("side", Type::Named(1)),
        Field::new("price", Type::Option(Box::new(Type::F64))),
        Field::new("venue", Type::Str)
            .default_value(&"XLON")
            .unwrap(),
        Field::new("note", Type::Option(Box::new(Type::Str))),
    ];
    let side = vec![
        Variant::new(
            "Sold",
            vec![
                Field::new("short", Type::Bool),
                Field::new("why", Type::Char).default_value(&'?').unwrap(),
            ],
        )
        .aliases(&["Sell"]),
        Variant::new("Buy", vec![]),
    ];
    version(2, order, side, Type::I16)
}

fn adapt(text: &str) -> Result<String, String> {
    let old = first();
    let new = second();
    let mut adapter = Adapter::new(&old, &new).unwrap();
    let bytes = Call::from_text(text, &old)
        .unwrap()
        .to_bytes(&old, None)
        .unwrap();
    let Record::Call(_, head, arguments) = Record::read(&bytes).unwrap() else {
        panic!("a call is a call")
    };
    let (number, arguments) = adapter
        .adapt(head.method, arguments)
        .map_err(|error| error.to_string())?
        .unwrap();
    let method = new.method(number).unwrap();
    Ok(Call::unpack(method, arguments, &new).unwrap().to_text())
}

#[test]
fn fields_come_go_move_widen_and_change_their_names() {
    let old = "
place:
  orders:
    - {symbol: A, obsolete: {x: 1}, price: 0.5, side: Buy}
    - {symbol: B, obsolete: {}, price: 2, side: {Sell: {short: true}}}
  count: 200
";
    let new = "\
place:
  orders:
    - ticker: A
      side: Buy
      price: 0.5
      venue: XLON
    - ticker: B
      side:
        Sold:
          short: true
          why: \"?\"
      price: 2.0
      venue: XLON
  count: 200
";
    assert_eq!(adapt(old).unwrap(), new);
}

#[test]
fn a_removed_variant_is_an_error_only_where_it_occurs() {
    let old = "place: {orders: [{symbol: A, obsolete: {}, price: 0, side: Hold}], count: 1}";
    let error = adapt(old).unwrap_err();
    assert!(error.ends_with("the enum has no variant Hold"), "{error}");
}

#[test]
fn what_cannot_be_read_is_named_before_any_record_is() {
    let error = Adapter::new(&second(), &first()).unwrap_err().to_string();
    let missing = "interface Orders, place.orders.symbol: missing in version 2, and has no default";
    assert_eq!(error, missing);

    let narrower = version(3, vec![], vec![Variant::new("Buy", vec![])], Type::I8);
    let error = Adapter::new(&first(), &narrower).unwrap_err().to_string();
    let narrow = "interface Orders, place.count: u8 in version 1 cannot be read as i8";
    assert_eq!(error, narrow);
}

#[test]
fn a_method_that_the_reader_lacks_is_none() {
    let bare = Schema::new("Orders", 9, vec![], vec![]).unwrap();
    let mut adapter = Adapter::new(&first(), &bare).unwrap();
    let arguments = millstream_wire::Unpacker::new(&[]);
    assert!(adapter.adapt(1, arguments.clone()).unwrap().is_none());
    assert!(adapter.adapt(0, arguments).unwrap().is_none());
}

/// Any schema against itself with one field more at the end of each method: every value must come through.
#[test]
fn whatever_is_not_touched_stays_as_it_is() {
    for seed in 0..1_000 {
        let random = &mut Random::new(seed);
        let old = schema(random);
        let mut methods = old.methods().to_vec();
        for method in &mut methods {
            let added = Field::new("added", Type::U64).default_value(&7u64).unwrap();
            method
                .arguments
                .insert(random.below(method.arguments.len() + 1), added);
        }
        let new = Schema::new("Any", 2, methods, old.definitions().to_vec()).unwrap();
        let mut adapter = Adapter::new(&old, &new).unwrap();
        let method = &old.methods()[random.below(old.methods().len())];
        let call = Call {
            at: None,
            method: method.name.clone(),
            arguments: values(random, &method.arguments, &old),
        };
        let bytes = call.to_bytes(&old, None).unwrap();
        let Ok(Record::Call(_, head, arguments)) = Record::read(&bytes) else {
            panic!("seed {seed}")
        };
        let (number, arguments) = adapter.adapt(head.method, arguments).unwrap().unwrap();
        let mut read = Call::unpack(new.method(number).unwrap(), arguments, &new).unwrap();
        read.arguments.retain(|(name, _)| name != "added");
        assert_eq!(read, call, "seed {seed}");
    }
}
