//! Calls of any type -> bytes -> calls -> YAML -> calls.

use millstream_wire::{Call, Catalog, Lineage, Note, Schema, documents};

use crate::random::{Random, schema, values};

fn call(random: &mut Random, schema: &Schema) -> Call {
    let method = &schema.methods()[random.below(schema.methods().len())];
    Call {
        at: (random.below(2) == 0).then(|| random.next() as i64),
        method: method.name.clone(),
        arguments: values(random, &method.arguments, schema),
    }
}

#[test]
fn every_call_survives_bytes_and_text() {
    for seed in 0..3_000 {
        let random = &mut Random::new(seed);
        let schema = schema(random);
        assert_eq!(
            Schema::from_bytes(&schema.to_bytes().unwrap()).unwrap(),
            schema,
            "seed {seed}"
        );

        let mut catalog = Catalog::default();
        let note = Note::Schema(schema.clone()).to_bytes().unwrap();
        assert_eq!(catalog.read(&note).unwrap(), None, "seed {seed}");

        let call = call(random, &schema);
        let lineage = (random.below(2) == 0).then(|| Lineage {
            input: random.next() as u32,
            sequence: random.next(),
            checksum: random.next() as u32,
        });
        let bytes = call.to_bytes(&schema, lineage).unwrap();
        let (origin, mut read) = catalog.read(&bytes).unwrap().unwrap();
        assert_eq!(origin, lineage, "seed {seed}");
        read.at = call.at;
        assert_eq!(read, call, "seed {seed}");

        let text = call.to_text();
        let read = Call::from_text(&text, &schema);
        assert_eq!(read.as_ref(), Ok(&call), "seed {seed}\n{text}");
    }
}

#[test]
fn a_file_of_calls_is_divided_at_its_lines() {
    for seed in 0..300 {
        let random = &mut Random::new(seed);
        let schema = schema(random);
        let calls: Vec<Call> = (0..4).map(|_| call(random, &schema)).collect();
        let texts: Vec<String> = calls.iter().map(Call::to_text).collect();
        let documents = documents(&texts.join("---\n")).unwrap();
        let read: Vec<Call> = documents
            .iter()
            .map(|it| it.call(&schema).unwrap())
            .collect();
        assert_eq!(read, calls, "seed {seed}");
        let kept: Vec<&str> = documents.iter().map(|it| it.text()).collect();
        assert_eq!(kept, texts, "seed {seed}");
    }
}
