//! What may be written may be read: one limit of nesting for typed values, values by name, other versions and text.

use millstream_wire::{
    Adapter, Call, DEPTH_MAX, Dispatch, Interface, Packer, Publisher, Record, Recorder, Schema,
    Value, WireError,
};

/// A tree that goes down through an option, a list or an enum.
#[derive(millstream_wire::Wire)]
struct Node {
    child: Option<Box<Node>>,
    more: Vec<Node>,
    either: Either,
}

#[derive(millstream_wire::Wire)]
enum Either {
    Leaf,
    Tree { root: Box<Node> },
}

#[millstream_wire::interface]
trait Trees {
    fn tree(&mut self, root: &Node) -> Result<(), millstream_wire::Cause>;
}

mod next {
    #[derive(millstream_wire::Wire)]
    pub struct Node {
        pub child: Option<Box<Node>>,
        #[wire(default = 7)]
        pub added: u8,
        pub more: Vec<Node>,
        pub either: Either,
    }

    #[derive(millstream_wire::Wire)]
    pub enum Either {
        Leaf,
        Tree { root: Box<Node> },
    }

    #[millstream_wire::interface]
    pub trait Trees {
        fn tree(&mut self, root: &Node);
    }
}

fn leaf() -> Node {
    Node {
        child: None,
        more: Vec::new(),
        either: Either::Leaf,
    }
}

/// Trees of the three kinds, with so many values within one another; a leaf is three: itself, and its empty list or
/// enum.
fn trees(depth: usize) -> [Node; 3] {
    let mut by_child = leaf();
    for _ in 2..depth {
        by_child = Node {
            child: Some(Box::new(by_child)),
            ..leaf()
        };
    }
    // Two levels for each node: the list, or the enum, and the node within.
    let mut by_list = leaf();
    let mut by_enum = leaf();
    for _ in 0..(depth - 2) / 2 {
        by_list = Node {
            more: vec![by_list],
            ..leaf()
        };
        by_enum = Node {
            either: Either::Tree {
                root: Box::new(by_enum),
            },
            ..leaf()
        };
    }
    [by_child, by_list, by_enum]
}

struct Counted(u32);

impl Trees for Counted {
    fn tree(&mut self, _root: &Node) -> Result<(), millstream_wire::Cause> {
        self.0 += 1;
        Ok(())
    }
}

impl next::Trees for Counted {
    fn tree(&mut self, _root: &next::Node) {
        self.0 += 1;
    }
}

fn publish(tree: &Node) -> Result<Call, millstream_wire::Cause> {
    let recorder = Recorder::default();
    let mut trees = Publisher::<dyn Trees, _>::new(recorder.clone())?;
    trees.tree(tree)?;
    Ok(recorder.take().remove(0))
}

fn read_by_all(call: &Call, schema: &Schema) {
    let mut component = Counted(0);
    let bytes = call.to_bytes(schema, None).unwrap();
    let Record::Call(_, head, arguments) = Record::read(&bytes).unwrap() else {
        panic!("no call")
    };
    <dyn Trees>::dispatch(&mut component, head.method, arguments.clone()).unwrap();
    let mut adapter = Adapter::new(schema, &<dyn next::Trees>::schema().unwrap()).unwrap();
    let (method, adapted) = adapter.adapt(head.method, arguments).unwrap().unwrap();
    <dyn next::Trees>::dispatch(&mut component, method, adapted).unwrap();
    assert_eq!(component.0, 2);
    assert_eq!(&Call::from_text(&call.to_text(), schema).unwrap(), call);
    assert!(!call.to_line().is_empty());
}

#[test]
fn every_reader_reads_what_a_publisher_accepts() {
    let schema = <dyn Trees>::schema().unwrap();
    for depth in [2, 3, 30, DEPTH_MAX - 2, DEPTH_MAX] {
        for tree in trees(depth) {
            read_by_all(&publish(&tree).unwrap(), &schema);
        }
    }
    for depth in [DEPTH_MAX + 2, 200] {
        for tree in trees(depth) {
            let error = publish(&tree).unwrap_err().to_string();
            assert!(error.contains("nested more than 64 levels deep"), "{error}");
        }
    }
}

#[test]
fn values_by_name_have_the_same_limit() {
    let schema = <dyn Trees>::schema().unwrap();
    let node = |child: Value| {
        let fields = [
            ("child", child),
            ("more", Value::List(Vec::new())),
            ("either", Value::Variant("Leaf".to_owned(), Vec::new())),
        ];
        let named = |(name, value): (&str, Value)| (name.to_owned(), value);
        Value::Struct(fields.map(named).to_vec())
    };
    let call = |depth: usize| {
        let mut root = node(Value::None);
        for _ in 2..depth {
            root = node(root);
        }
        Call {
            at: None,
            method: "tree".to_owned(),
            arguments: vec![("root".to_owned(), root)],
        }
    };
    read_by_all(&call(DEPTH_MAX), &schema);
    let error = call(DEPTH_MAX + 1).to_bytes(&schema, None).unwrap_err();
    assert!(error.to_string().contains("nested more than 64"), "{error}");
}

#[test]
fn a_packer_counts_what_is_within_what() {
    fn lists(out: &mut Packer<'_>, left: usize) -> Result<(), Box<WireError>> {
        out.array(usize::from(left > 0))?;
        match left {
            0 => Ok(()),
            left => out.deeper(|out| lists(out, left - 1)),
        }
    }
    assert!(millstream_wire::pack(100, |out| lists(out, DEPTH_MAX)).is_ok());
    assert!(millstream_wire::pack(100, |out| lists(out, DEPTH_MAX + 1)).is_err());
    // One after the other is not one within the other.
    let many = millstream_wire::pack(1_000, |out| (0..200).try_for_each(|_| lists(out, 2)));
    assert!(many.is_ok());
}
