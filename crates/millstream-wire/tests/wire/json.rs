//! Calls and values of any type -> JSON -> the same; and what is refused, with its place.

use millstream_wire::{
    Call, Definition, Field, Method, NamedValues, Schema, Shape, Type, Value, Variant,
};

use crate::random::{Random, schema, values};

#[test]
fn every_call_survives_json() {
    for seed in 0..3_000 {
        let random = &mut Random::new(seed);
        let schema = schema(random);
        let method = &schema.methods()[random.below(schema.methods().len())];
        let call = Call {
            at: None,
            method: method.name.clone(),
            arguments: values(random, &method.arguments, &schema),
        };
        let text = serde_json::to_vec(&NamedValues(&call.arguments)).unwrap();
        let read = Call::from_json(&method.name, &text, &schema);
        let shown = String::from_utf8_lossy(&text);
        assert_eq!(read.as_ref(), Ok(&call), "seed {seed}\n{shown}");
    }
}

/// Every type that a key can have, and every float that is not finite, which the random values lack.
#[test]
fn every_key_and_every_float_survives_json() {
    let side = Definition {
        name: "Side".into(),
        shape: Shape::Enum(vec![
            Variant::new("Buy", vec![]),
            Variant::new("Sell", vec![]),
        ]),
    };
    let schema = Schema::new("Any", 1, vec![], vec![side]).unwrap();
    let text = |text: &str| Value::Str(text.to_owned());
    let keys = [
        (Type::Bool, Value::Bool(true)),
        (Type::I8, Value::Int(i8::MIN.into())),
        (Type::I64, Value::Int(i64::MIN.into())),
        (Type::U64, Value::Int(u64::MAX.into())),
        (Type::Char, text("\"")),
        (Type::Str, text("7")),
        (Type::Str, text("true")),
        (Type::Bytes, Value::Bytes(vec![0, 255])),
        (Type::Timestamp, Value::Timestamp(i64::MIN)),
        (Type::Decimal, Value::Decimal("-1.50".into())),
        (Type::Named(0), Value::Variant("Sell".into(), vec![])),
    ];
    for (ty, key) in keys {
        let ty = Type::Map(Box::new(ty), Box::new(Type::Bool));
        let map = Value::Map(vec![(key, Value::Bool(false))]);
        let json = serde_json::to_vec(&map).unwrap();
        assert_eq!(Value::from_json(&json, &ty, &schema), Ok(map));
    }
    for value in [
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::MAX,
        5e-324,
        -0.0,
    ] {
        let json = serde_json::to_vec(&Value::F64(value)).unwrap();
        let Ok(Value::F64(read)) = Value::from_json(&json, &Type::F64, &schema) else {
            panic!("{value}");
        };
        assert_eq!(read.to_bits(), value.to_bits());
    }
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-45, -0.0] {
        let json = serde_json::to_vec(&Value::F32(value)).unwrap();
        assert_eq!(
            Value::from_json(&json, &Type::F32, &schema),
            Ok(Value::F32(value))
        );
    }
}

fn orders() -> Schema {
    let leg = Definition {
        name: "Leg".into(),
        shape: Shape::Struct(vec![
            Field::new("symbol", Type::Str),
            Field::new("quantity", Type::U32),
            Field::new("note", Type::Option(Box::new(Type::Str))),
        ]),
    };
    let kind = Definition {
        name: "Kind".into(),
        shape: Shape::Enum(vec![
            Variant::new("Market", vec![]),
            Variant::new("Limit", vec![Field::new("price", Type::F64)]).aliases(&["Stop"]),
        ]),
    };
    let at = Field::new("due", Type::Timestamp);
    let arguments = vec![
        Field::new("id", Type::Str).aliases(&["key"]),
        Field::new("legs", Type::List(Box::new(Type::Named(0)))),
        Field::new("kind", Type::Named(1)),
        Field::new("hurry", Type::Bool)
            .default_value(&true)
            .unwrap(),
        Field::new(
            "tags",
            Type::Map(Box::new(Type::U8), Box::new(Type::Decimal)),
        )
        .default_value(&std::collections::BTreeMap::<u8, u8>::new())
        .unwrap(),
    ];
    let methods = vec![
        Method::new("place", arguments),
        Method::new("open", vec![]),
        Method::new("until", vec![at]),
    ];
    Schema::new("Orders", 1, methods, vec![leg, kind]).unwrap()
}

fn read(method: &str, arguments: &str) -> Result<Call, String> {
    let read = Call::from_json(method, arguments.as_bytes(), &orders());
    read.map_err(|error| error.to_string())
}

#[test]
fn defaults_and_aliases_are_those_of_the_schema() {
    let json =
        r#"{"key": "A", "legs": [{"symbol": "X", "quantity": 2}], "kind": {"Stop": {"price": 7}}}"#;
    let call = read("place", json).unwrap();
    let shown = serde_json::to_string(&NamedValues(&call.arguments)).unwrap();
    let expected = r#"{"id":"A","legs":[{"symbol":"X","quantity":2,"note":null}],"kind":{"Limit":{"price":7.0}},"hurry":true,"tags":{}}"#;
    assert_eq!(shown, expected);
    assert!(call.to_bytes(&orders(), None).is_ok());
    for nothing in ["", " \n", "{}"] {
        assert_eq!(read("open", nothing).unwrap().arguments, []);
    }
}

/// Arguments of `place`, and the error.
const REFUSED: [(&str, &str); 23] = [
    ("", "place.id: the argument is missing and has no default"),
    (
        "[1]",
        "place: expected an object of arguments by name, found an array",
    ),
    (
        "null",
        "place: expected an object of arguments by name, found null",
    ),
    (
        r#"{"id": "A""#,
        "place: no JSON: EOF while parsing an object at line 1 column 10",
    ),
    (
        "{} {}",
        "place: no JSON: trailing characters at line 1 column 4",
    ),
    (
        r#"{"id": 1, "id": 2}"#,
        "place: no JSON: the key id is there twice at line 1 column 18",
    ),
    (
        r#"{"id": "A", "key": "B"}"#,
        "place.id: id and key are names of one argument",
    ),
    (r#"{"ID": "A"}"#, r#"place: there is no argument "ID""#),
    (
        r#"{"id": 7, "legs": [], "kind": "Market"}"#,
        "place.id: expected str, found 7",
    ),
    (
        r#"{"id": null, "legs": [], "kind": "Market"}"#,
        "place.id: expected str, found null",
    ),
    (
        r#"{"id": "A", "legs": {}, "kind": "Market"}"#,
        "place.legs: expected an array, found an object",
    ),
    (
        r#"{"id": "A", "legs": [{"symbol": "X", "quantity": -1}], "kind": "Market"}"#,
        "place.legs[0].quantity: -1 is out of range for u32",
    ),
    (
        r#"{"id": "A", "legs": [{"symbol": "X", "quantity": 1.5}], "kind": "Market"}"#,
        "place.legs[0].quantity: expected u32, found 1.5",
    ),
    (
        r#"{"id": "A", "legs": [{"symbol": "X", "quantity": "1"}], "kind": "Market"}"#,
        r#"place.legs[0].quantity: expected u32, found "1""#,
    ),
    (
        r#"{"id": "A", "legs": [{"symbol": "X", "quantity": 99999999999999999999}], "kind": "Market"}"#,
        "place.legs[0].quantity: expected u32, found 1e20",
    ),
    (
        r#"{"id": "A", "legs": [{"symbol": "X"}], "kind": "Market"}"#,
        "place.legs[0].quantity: the field is missing and has no default",
    ),
    (
        r#"{"id": "A", "legs": [], "kind": "Other"}"#,
        r#"place.kind: Kind is one of Market, Limit, not "Other""#,
    ),
    (
        r#"{"id": "A", "legs": [], "kind": "Limit"}"#,
        "place.kind.Limit.price: the field is missing and has no default",
    ),
    (
        r#"{"id": "A", "legs": [], "kind": 3}"#,
        "place.kind: expected a variant of Kind, found 3",
    ),
    (
        r#"{"id": "A", "legs": [], "kind": "Market", "hurry": 1}"#,
        "place.hurry: expected bool, found 1",
    ),
    (
        r#"{"id": "A", "legs": [], "kind": "Market", "tags": {"300": "1"}}"#,
        r#"place.tags["300"]: 300 is out of range for u8"#,
    ),
    (
        r#"{"id": "A", "legs": [], "kind": "Market", "tags": {"1": 1.5}}"#,
        r#"place.tags["1"]: expected a decimal number in a string, found 1.5"#,
    ),
    (
        r#"{"id": "A", "legs": [], "kind": "Market", "tags": {"1": "1", "01": "2"}}"#,
        "place.tags: the key 1 is there twice",
    ),
];

#[test]
fn what_is_refused_names_method_argument_and_field() {
    for (json, error) in REFUSED {
        assert_eq!(read("place", json).unwrap_err(), error, "{json}");
    }
    let error = read("cancel", "{}").unwrap_err();
    assert_eq!(error, "interface Orders has no method cancel");
    let error = read("until", r#"{"due": 5}"#).unwrap_err();
    assert_eq!(
        error,
        "until.due: expected a moment like \"2026-11-21T09:30:00Z\", found 5"
    );
    let long = format!(r#"{{"due": "{}"}}"#, "x".repeat(500));
    assert!(read("until", &long).is_err());
}

#[test]
fn any_text_is_refused_or_read_without_a_panic() {
    let deep = format!(r#"{{"id": {}"#, "[".repeat(10_000));
    assert!(read("place", &deep).is_err());
    let good = br#"{"id": "A", "legs": [{"symbol": "X", "quantity": 2}], "kind": {"Limit": {"price": 7e3}}}"#;
    let schema = orders();
    for seed in 0..20_000 {
        let random = &mut Random::new(seed);
        let mut text = good.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(text.len());
            text[at] = b"{}[]\",:0-e. \x00\xffnX"[random.below(16)];
        }
        if let Ok(call) = Call::from_json("place", &text, &schema) {
            assert!(call.to_bytes(&schema, None).is_ok(), "seed {seed}");
        }
    }
}
