//! A reader returns a value or an error for any bytes or text: damaged copies of valid ones, truncations at every byte,
//! and noise.

use millstream_wire::{
    Adapter, Call, Catalog, KeyedCall, Note, Record, Schema, Unpacker, carry_comments, documents,
};

use crate::random::{Random, schema, values};

/// Reads `bytes` in all ways there are.
fn read_all(bytes: &[u8], schema: &Schema, adapter: &mut Adapter) {
    let mut catalog = Catalog::default();
    catalog.learn(Note::Schema(schema.clone())).unwrap();
    let _ = catalog.read(bytes);
    let _ = KeyedCall::read(bytes);
    let _ = Schema::from_bytes(bytes);
    let _ = Unpacker::new(bytes).skip();
    if let Ok(Record::Call(_, head, arguments)) = Record::read(bytes) {
        let _ = adapter.adapt(head.method, arguments);
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(documents) = documents(&text) {
        for document in documents {
            let _ = document.call(schema);
            let _ = carry_comments(&document, &text);
        }
    }
}

#[test]
fn broken_records_and_texts_never_panic() {
    for seed in 0..400 {
        let random = &mut Random::new(seed);
        let schema = schema(random);
        let mut adapter = Adapter::new(&schema, &schema).unwrap();
        let method = &schema.methods()[0];
        let call = Call {
            at: None,
            method: method.name.clone(),
            arguments: values(random, &method.arguments, &schema),
        };
        let good = [
            call.to_bytes(&schema, None).unwrap(),
            Note::Schema(schema.clone()).to_bytes().unwrap(),
            call.to_text().into_bytes(),
        ];
        for good in good {
            for cut in 0..good.len().min(64) {
                read_all(&good[..cut], &schema, &mut adapter);
            }
            for _ in 0..20 {
                let mut bad = good.clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(bad.len());
                    bad[at] = random.next() as u8;
                }
                read_all(&bad, &schema, &mut adapter);
            }
        }
        let noise: Vec<u8> = (0..64).map(|_| random.next() as u8).collect();
        read_all(&noise, &schema, &mut adapter);
    }
}

#[test]
fn a_record_that_is_cut_is_an_error_at_every_byte() {
    for seed in 0..200 {
        let random = &mut Random::new(seed);
        let schema = schema(random);
        let method = &schema.methods()[0];
        let call = Call {
            at: None,
            method: method.name.clone(),
            arguments: values(random, &method.arguments, &schema),
        };
        let mut catalog = Catalog::default();
        catalog.learn(Note::Schema(schema.clone())).unwrap();
        let good = call.to_bytes(&schema, None).unwrap();
        for cut in 0..good.len() {
            assert!(
                catalog.read(&good[..cut]).is_err(),
                "seed {seed}, cut at {cut}"
            );
        }
        let longer = [&good[..], &[0]].concat();
        assert!(catalog.read(&longer).is_err(), "seed {seed}, a byte more");
    }
}
