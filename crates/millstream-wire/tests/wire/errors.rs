//! Each error names the method, the argument, the field and the line.

use millstream_wire::{
    Call, Catalog, Definition, Field, Method, Note, Schema, Shape, Type, Value, Variant,
};

fn orders() -> Schema {
    let order = Definition {
        name: "Order".into(),
        shape: Shape::Struct(vec![
            Field::new("symbol", Type::Str),
            Field::new("quantity", Type::U32),
            Field::new("note", Type::Option(Box::new(Type::Str))),
            Field::new("side", Type::Named(1)),
        ]),
    };
    let side = Definition {
        name: "Side".into(),
        shape: Shape::Enum(vec![
            Variant::new("Buy", vec![]),
            Variant::new("Sell", vec![Field::new("short", Type::Bool)]),
        ]),
    };
    let methods = vec![
        Method::new("place", vec![Field::new("order", Type::Named(0))]),
        Method::new(
            "cancel",
            vec![
                Field::new("id", Type::U64),
                Field::new("reason", Type::Char),
            ],
        ),
        Method::new("halt", vec![]),
    ];
    Schema::new("Orders", 1, methods, vec![order, side]).unwrap()
}

fn text_error(text: &str) -> String {
    Call::from_text(text, &orders()).unwrap_err().to_string()
}

#[test]
fn texts_of_calls_are_what_the_guide_says() {
    for (text, canonical) in [
        ("halt:\n", "halt: {}\n"),
        (
            "cancel: {id: 7, reason: x}\n",
            "cancel:\n  id: 7\n  reason: x\n",
        ),
        (
            "at: 2026-11-21T10:00:00+01:00\nplace: {symbol: 123, quantity: 5, side: Buy}\n",
            "at: 2026-11-21T09:00:00Z\nplace:\n  symbol: \"123\"\n  quantity: 5\n  side: Buy\n",
        ),
        (
            "place: {symbol: A, quantity: 5, note: null, side: {Sell: {short: true}}}\n",
            "place:\n  symbol: A\n  quantity: 5\n  side:\n    Sell:\n      short: true\n",
        ),
    ] {
        let call = Call::from_text(text, &orders()).unwrap();
        assert_eq!(call.to_text(), canonical);
        assert_eq!(Call::from_text(canonical, &orders()).unwrap(), call);
    }
}

#[test]
fn a_text_says_line_and_field() {
    for (text, error) in [
        ("buy: 1", "line 1: interface Orders has no method buy"),
        (
            "place:\n  symbol: A\n  side: Buy\n",
            "line 2: place.order.quantity: the field is missing and has no default",
        ),
        (
            "place:\n  symbol: A\n  quantity: -1\n  side: Buy",
            "line 3: place.order.quantity: -1 is out of range for u32",
        ),
        (
            "place:\n  symbol: A\n  quantity: 1\n  side: Hold",
            "line 4: place.order.side: Side is one of Buy, Sell, not Hold",
        ),
        (
            "place:\n  symbol: A\n  price: 1",
            "line 3: place.order: there is no field price",
        ),
        (
            "halt:\ncancel: {id: 1, reason: x}",
            "line 2: one document is one call",
        ),
        (
            "cancel: {id: 1, reason: long}",
            "line 1: cancel.reason: expected one character, found \"long\"",
        ),
        (
            "cancel: [1]",
            "line 1: cancel: expected a mapping, found a list",
        ),
        ("at: 2026-11-21T09:00:00Z", "line 1: there is no method"),
    ] {
        assert_eq!(text_error(text), error, "{text}");
    }
}

#[test]
fn a_record_says_method_field_and_byte() {
    let schema = orders();
    let mut catalog = Catalog::default();
    let call = Call::from_text("place: {symbol: A, quantity: 5, side: Buy}", &schema).unwrap();
    let mut bytes = call.to_bytes(&schema, None).unwrap();
    let unknown = catalog.read(&bytes).unwrap_err().to_string();
    assert!(
        unknown.contains("the journal has no schema 0x"),
        "{unknown}"
    );

    catalog.learn(Note::Schema(schema)).unwrap();
    let quantity = bytes.len() - 3;
    bytes[quantity] = 0xc3;
    let error = catalog.read(&bytes).unwrap_err().to_string();
    let expected =
        format!("place.order.quantity: byte {quantity}: expected an integer, found a bool");
    assert_eq!(error, expected);
}

#[test]
fn a_value_of_another_type_is_not_written() {
    let schema = orders();
    let call = |arguments: Vec<(&str, Value)>| Call {
        at: None,
        method: "cancel".into(),
        arguments: arguments
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .collect(),
    };
    let id = || ("id", Value::Int(1));
    let reason = || ("reason", Value::Str("x".into()));
    for (arguments, error) in [
        (
            vec![id()],
            "cancel.reason: the field is missing and has no default",
        ),
        (
            vec![id(), ("reason", Value::Bool(true))],
            "cancel.reason: expected char, found a bool",
        ),
        (
            vec![("id", Value::Int(-1)), reason()],
            "cancel.id: -1 is out of range for u64",
        ),
        (
            vec![id(), reason(), ("who", Value::None)],
            "cancel: expected a field of the schema, found who",
        ),
    ] {
        let found = call(arguments).to_bytes(&schema, None).unwrap_err();
        assert_eq!(found.to_string(), error);
    }
}

#[test]
fn a_schema_that_makes_no_sense_is_refused() {
    let field = |name: &str, ty| Method::new("m", vec![Field::new(name, ty)]);
    let option = || Type::Option(Box::new(Type::Bool));
    for (methods, error) in [
        (
            vec![Method::new("m", vec![]), Method::new("m", vec![])],
            "interface I: two methods are called m",
        ),
        (
            vec![Method::new("at", vec![])],
            "interface I: a method may not be called at",
        ),
        (
            vec![Method::new("a b", vec![])],
            "interface I: \"a b\" cannot be the name of a method",
        ),
        (
            vec![field("x", Type::Named(3))],
            "interface I: m.x: there is no type of number 3",
        ),
        (
            vec![field("x", Type::Option(Box::new(option())))],
            "interface I: m.x: an option within an option cannot be told from none",
        ),
        (
            vec![field(
                "x",
                Type::Map(Box::new(Type::F64), Box::new(Type::Str)),
            )],
            "interface I: m.x: f64 cannot be the key of a map",
        ),
        (
            vec![Method::new(
                "m",
                vec![Field {
                    default: Some(vec![0xc3]),
                    ..Field::new("x", Type::Str)
                }],
            )],
            "interface I: m.x: byte 0: expected a string, found a bool",
        ),
    ] {
        assert_eq!(
            Schema::new("I", 1, methods, vec![])
                .unwrap_err()
                .to_string(),
            error
        );
    }
}
