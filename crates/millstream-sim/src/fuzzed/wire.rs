//! Arbitrary bytes and texts as values, calls and schemas: what can be read can be written, and is the same when it is
//! read again.

use std::sync::LazyLock;

use millstream_wire::{
    Adapter, Call, Catalog, Definition, Field, KeyedCall, Method, Note, Record, Schema, Shape,
    Type, Unpacker, Value, Variant, carry_comments, documents,
};

/// A schema in which every type occurs, and one of them within itself.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let boxed = |ty: Type| Box::new(ty);
    let scalars = [
        Type::Bool,
        Type::I8,
        Type::I16,
        Type::I32,
        Type::I64,
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::F32,
        Type::F64,
        Type::Char,
        Type::Str,
        Type::Bytes,
        Type::Timestamp,
        Type::Decimal,
    ];
    let fields = scalars.into_iter().enumerate();
    let fields = fields
        .map(|(at, ty)| Field::new(format!("f{at}"), Type::Option(boxed(ty))))
        .collect();
    let tree = vec![
        Variant::new("Leaf", vec![]),
        Variant::new(
            "Node",
            vec![Field::new("children", Type::List(boxed(Type::Named(1))))],
        ),
    ];
    let definitions = vec![
        Definition {
            name: "All".into(),
            shape: Shape::Struct(fields),
        },
        Definition {
            name: "Tree".into(),
            shape: Shape::Enum(tree),
        },
    ];
    let prices = Type::Map(boxed(Type::Str), boxed(Type::F64));
    let methods = vec![
        Method::new("all", vec![Field::new("all", Type::Named(0))]),
        Method::new(
            "tree",
            vec![
                Field::new("tree", Type::Named(1)),
                Field::new("prices", prices),
            ],
        ),
        Method::new("none", vec![]),
    ];
    Schema::new("Fuzzed", 1, methods, definitions).expect("it is within the limits")
});

/// Feeds one input. It panics when it finds something.
pub fn run(input: &[u8]) {
    let [how, input @ ..] = input else { return };
    match how % 4 {
        0 => schema(input),
        1 => call(input),
        2 => values(input),
        _ => text(&String::from_utf8_lossy(input)),
    }
}

fn schema(bytes: &[u8]) {
    let Ok(schema) = Schema::from_bytes(bytes) else {
        return;
    };
    let again = schema.to_bytes().expect("a schema can be written");
    assert_eq!(Schema::from_bytes(&again).as_ref(), Ok(&schema));
    if let Ok(mut adapter) = Adapter::new(&schema, &SCHEMA) {
        let _ = adapter.adapt(1, Unpacker::new(bytes));
    }
    // Calls of an arbitrary schema.
    let mut catalog = Catalog::default();
    catalog
        .learn(Note::Schema(schema))
        .expect("it is the only one");
    let _ = catalog.read(bytes);
    if let Ok(Some(call)) = KeyedCall::read(bytes) {
        assert!(bytes.ends_with(call.contents));
    }
}

fn call(arguments: &[u8]) {
    let [method, arguments @ ..] = arguments else {
        return;
    };
    let Ok(method) = SCHEMA.method(u64::from(*method) % 4) else {
        return;
    };
    let Ok(call) = Call::unpack(method, Unpacker::new(arguments), &SCHEMA) else {
        return;
    };
    rewrite(&call);
}

/// A call that could be read, through bytes and text and back.
fn rewrite(call: &Call) {
    let bytes = call
        .to_bytes(&SCHEMA, None)
        .expect("what was read can be written");
    let mut catalog = Catalog::default();
    catalog
        .learn(Note::Schema(SCHEMA.clone()))
        .expect("it is the only one");
    let (_, again) = catalog
        .read(&bytes)
        .expect("what was written can be read")
        .expect("it is a call");
    assert_eq!(again.to_bytes(&SCHEMA, None).as_ref(), Ok(&bytes));
    let text = call.to_text();
    let read = Call::from_text(&text, &SCHEMA).expect("the text of a call is one");
    // Only the bits of a number that is none get lost in a text.
    if !text.contains(".nan") {
        assert_eq!(read.to_bytes(&SCHEMA, None).as_ref(), Ok(&bytes), "{text}");
    }
    assert_eq!(read.to_text(), text);
}

fn values(bytes: &[u8]) {
    let mut values = Unpacker::new(bytes);
    while let Ok(skipped) = values.skip() {
        assert!(!skipped.is_empty());
    }
    for ty in [Type::Named(0), Type::Named(1), Type::Decimal] {
        if let Ok(value) = Value::from_bytes(bytes, &ty, &SCHEMA) {
            let again = value
                .to_bytes(&ty, &SCHEMA)
                .expect("what was read can be written");
            let read =
                Value::from_bytes(&again, &ty, &SCHEMA).expect("what was written can be read");
            assert_eq!(read.to_bytes(&ty, &SCHEMA), Ok(again));
        }
    }
    let mut catalog = Catalog::default();
    let _ = catalog.read(bytes);
    if let Ok(Some(call)) = KeyedCall::read(bytes) {
        assert!(bytes.ends_with(call.contents));
    }
    if let Ok(Record::Call(_, head, arguments)) = Record::read(bytes) {
        let mut adapter = Adapter::new(&SCHEMA, &SCHEMA).expect("a schema fits itself");
        let _ = adapter.adapt(head.method, arguments);
    }
}

fn text(text: &str) {
    let Ok(documents) = documents(text) else {
        return;
    };
    for document in documents {
        if let Ok(call) = document.call(&SCHEMA) {
            rewrite(&call);
        }
        let _ = carry_comments(&document, text);
    }
}
