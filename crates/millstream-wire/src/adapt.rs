//! Records of one version of an interface as those of another.
//!
//! Fields and methods of two versions are matched by name. A field that the reader has and the writer had not takes its
//! default, one that only the writer had is skipped, a renamed one is found by its alias; a number may become wider, a
//! value optional. Any other difference is an error when the adapter is created, before any record is read, and names
//! method and field.
//!
//! The adapter rewrites the arguments of a call in the reader's layout, so that decoders know one layout only. Calls
//! that look the same in both versions pass untouched.

use std::collections::HashMap;

use crate::error::{Misfit, Result, WireError};
use crate::pack::Packer;
use crate::schema::{Field, Schema, Shape, Type, Variant};
use crate::unpack::Unpacker;

/// How calls written with one schema are read with another.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Adapter {
    /// For each method of the writer the number that the reader has for it, and how its arguments change.
    methods: Vec<Option<(u64, Plan)>>,
    /// How each pair of named types changes.
    named: Vec<Named>,
    scratch: Vec<u8>,
}

/// How a value is converted.
#[derive(Debug, Clone, PartialEq)]
enum Plan {
    Copy,
    Fields(Vec<Slot>, usize),
    /// By position in `Adapter::named`.
    Named(usize),
    Option(Box<Plan>),
    List(Box<Plan>),
    Map(Box<Plan>, Box<Plan>),
}

/// The source of a field of the reader.
#[derive(Debug, Clone, PartialEq)]
enum Slot {
    From(usize, Plan),
    Default(Vec<u8>),
}

#[derive(Debug)]
enum Named {
    Pending,
    Struct(Plan),
    /// For each variant of the writer, if the reader has it: its number there and its fields.
    Enum(Vec<Option<(u64, Plan)>>, Vec<String>),
}

impl Adapter {
    /// Compares two schemas.
    ///
    /// # Errors
    /// [`WireError::Incompatible`] names the method and the field that cannot be read.
    pub fn new(writer: &Schema, reader: &Schema) -> Result<Self> {
        let mut compare = Compare {
            writer,
            reader,
            named: Vec::new(),
            seen: HashMap::new(),
        };
        let method =
            |theirs: &crate::schema::Method| {
                let Some(at) = reader.methods().iter().position(|ours| {
                    ours.name == theirs.name || ours.aliases.contains(&theirs.name)
                }) else {
                    return Ok(None);
                };
                let ours = &reader.methods()[at];
                let plan = compare.fields(&theirs.arguments, &ours.arguments, &ours.name)?;
                Ok(Some((at as u64 + 1, plan)))
            };
        let methods = writer.methods().iter().map(method).collect::<Result<_>>()?;
        let named = compare.named;
        Ok(Self {
            methods,
            named,
            scratch: Vec::new(),
        })
    }

    /// Takes a call of the writer's method `number`, whose `arguments` are the rest of `values`: returns the
    /// reader's number and a reader of the arguments in its own layout. `None` where the reader has no such method.
    ///
    /// # Errors
    /// The arguments do not match the writer's schema.
    pub fn adapt<'a>(
        &'a mut self,
        number: u64,
        mut values: Unpacker<'a>,
    ) -> Result<Option<(u64, Unpacker<'a>)>> {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let Some(Some((number, plan))) = index.and_then(|index| self.methods.get(index)) else {
            return Ok(None);
        };
        let (slots, count) = match plan {
            Plan::Fields(slots, count) => (slots, *count),
            _ => return Ok(Some((*number, values))),
        };
        let rewrite = Rewrite { named: &self.named };
        if self.scratch.is_empty() {
            self.scratch.resize(1024, 0);
        }
        let len = loop {
            let mut attempt = values.clone();
            let mut out = Packer::new(&mut self.scratch);
            match rewrite.slots(&mut attempt, &mut out, slots, count) {
                Ok(()) => {
                    values = attempt;
                    break out.len();
                }
                Err(error) if matches!(*error, WireError::Full { .. }) => {
                    let room = self.scratch.len();
                    self.scratch.resize(room * 2, 0);
                }
                Err(error) => return Err(error),
            }
        };
        values.end()?;
        Ok(Some((*number, Unpacker::new(&self.scratch[..len]))))
    }
}

struct Compare<'s> {
    writer: &'s Schema,
    reader: &'s Schema,
    named: Vec<Named>,
    seen: HashMap<(usize, usize), usize>,
}

impl Compare<'_> {
    fn incompatible(&self, place: &str, reason: String) -> Box<WireError> {
        Box::new(WireError::Incompatible {
            interface: self.reader.interface().to_owned(),
            place: place.to_owned(),
            reason,
        })
    }

    fn fields(&mut self, theirs: &[Field], ours: &[Field], place: &str) -> Result<Plan> {
        let mut slots = Vec::with_capacity(ours.len());
        for field in ours {
            let place = format!("{place}.{}", field.name);
            let known = |name: &String| field.name == *name || field.aliases.contains(name);
            let slot = match theirs.iter().position(|it| known(&it.name)) {
                Some(at) => Slot::From(at, self.ty(&theirs[at].ty, &field.ty, &place)?),
                None => match field.absent() {
                    Some(default) => Slot::Default(default.to_owned()),
                    None => {
                        let version = self.writer.version();
                        let reason = format!("missing in version {version}, and has no default");
                        return Err(self.incompatible(&place, reason));
                    }
                },
            };
            slots.push(slot);
        }
        let stays = |(at, slot): (usize, &Slot)| *slot == Slot::From(at, Plan::Copy);
        if theirs.len() == ours.len() && slots.iter().enumerate().all(stays) {
            return Ok(Plan::Copy);
        }
        Ok(Plan::Fields(slots, theirs.len()))
    }

    fn ty(&mut self, theirs: &Type, ours: &Type, place: &str) -> Result<Plan> {
        let wrap = |plan: Plan, wrap: fn(Box<Plan>) -> Plan| match plan {
            Plan::Copy => Plan::Copy,
            plan => wrap(Box::new(plan)),
        };
        match (theirs, ours) {
            (Type::Option(theirs), Type::Option(ours)) => {
                Ok(wrap(self.ty(theirs, ours, place)?, Plan::Option))
            }
            (Type::List(theirs), Type::List(ours)) => {
                Ok(wrap(self.ty(theirs, ours, place)?, Plan::List))
            }
            (Type::Map(their_key, theirs), Type::Map(our_key, ours)) => {
                let key = self.ty(their_key, our_key, place)?;
                let value = self.ty(theirs, ours, place)?;
                if (&key, &value) == (&Plan::Copy, &Plan::Copy) {
                    return Ok(Plan::Copy);
                }
                Ok(Plan::Map(Box::new(key), Box::new(value)))
            }
            (Type::Named(theirs), Type::Named(ours)) => self.named(*theirs, *ours, place),
            (theirs, Type::Option(ours)) => self.ty(theirs, ours, place),
            (theirs, ours) if holds(theirs, ours) => Ok(Plan::Copy),
            (theirs, ours) => {
                let theirs = self.writer.type_name(theirs);
                let ours = self.reader.type_name(ours);
                let version = self.writer.version();
                let reason = format!("{theirs} in version {version} cannot be read as {ours}");
                Err(self.incompatible(place, reason))
            }
        }
    }

    fn named(&mut self, theirs: usize, ours: usize, place: &str) -> Result<Plan> {
        if let Some(&at) = self.seen.get(&(theirs, ours)) {
            return Ok(Plan::Named(at));
        }
        let at = self.named.len();
        self.seen.insert((theirs, ours), at);
        self.named.push(Named::Pending);
        let writer = self.writer;
        let reader = self.reader;
        let theirs = writer.definition(theirs)?;
        let ours = reader.definition(ours)?;
        self.named[at] = match (&theirs.shape, &ours.shape) {
            (Shape::Struct(theirs), Shape::Struct(ours)) => {
                Named::Struct(self.fields(theirs, ours, place)?)
            }
            (Shape::Enum(theirs), Shape::Enum(ours)) => self.variants(theirs, ours, place)?,
            _ => {
                let reason = format!("{} and {} are a struct and an enum", theirs.name, ours.name);
                return Err(self.incompatible(place, reason));
            }
        };
        let stays = match &self.named[at] {
            Named::Struct(plan) => *plan == Plan::Copy,
            Named::Enum(plans, _) => {
                let stays = |(at, plan): (usize, &Option<(u64, Plan)>)| {
                    *plan == Some((at as u64, Plan::Copy))
                };
                plans.iter().enumerate().all(stays)
            }
            Named::Pending => false,
        };
        Ok(if stays { Plan::Copy } else { Plan::Named(at) })
    }

    fn variants(&mut self, theirs: &[Variant], ours: &[Variant], place: &str) -> Result<Named> {
        let mut plans = Vec::with_capacity(theirs.len());
        for variant in theirs {
            let known =
                |it: &Variant| it.name == variant.name || it.aliases.contains(&variant.name);
            plans.push(match ours.iter().position(known) {
                Some(number) => {
                    let place = format!("{place}.{}", variant.name);
                    let plan = self.fields(&variant.fields, &ours[number].fields, &place)?;
                    // The number is in one array with the fields, so these are never copied as a group.
                    Some((number as u64, plan))
                }
                None => None,
            });
        }
        let names = theirs.iter().map(|variant| variant.name.clone()).collect();
        Ok(Named::Enum(plans, names))
    }
}

/// Whether every value of one type that holds no others is, byte by byte, one of the other too.
fn holds(theirs: &Type, ours: &Type) -> bool {
    if let (Some(theirs), Some(ours)) = (theirs.integer_range(), ours.integer_range()) {
        return ours.0 <= theirs.0 && theirs.1 <= ours.1;
    }
    theirs == ours
        || matches!(
            (theirs, ours),
            (Type::F32, Type::F64) | (Type::Char | Type::Decimal, Type::Str)
        )
}

struct Rewrite<'p> {
    named: &'p [Named],
}

impl Rewrite<'_> {
    fn value(&self, values: &mut Unpacker<'_>, out: &mut Packer<'_>, plan: &Plan) -> Result<()> {
        match plan {
            Plan::Copy => out.raw(values.skip()?),
            Plan::Fields(slots, count) => {
                values.array_of(*count)?;
                out.array(slots.len())?;
                values.deeper(|values| self.slots(values, out, slots, *count))
            }
            Plan::Named(at) => match &self.named[*at] {
                Named::Struct(plan) => self.value(values, out, plan),
                Named::Enum(plans, names) => self.variant(values, out, plans, names),
                Named::Pending => Err(values.misfit(Misfit::Deep)), // none is left pending
            },
            Plan::Option(_) if values.take_nil()? => out.nil(),
            Plan::Option(plan) => self.value(values, out, plan),
            Plan::List(plan) => {
                let len = values.array()?;
                out.array(len)?;
                values.deeper(|values| (0..len).try_for_each(|_| self.value(values, out, plan)))
            }
            Plan::Map(key, value) => {
                let len = values.map()?;
                out.map(len)?;
                values.deeper(|values| {
                    (0..len).try_for_each(|_| {
                        self.value(values, out, key)?;
                        self.value(values, out, value)
                    })
                })
            }
        }
    }

    /// Fields without the head of their array: `count` values of the writer.
    fn slots(
        &self,
        values: &mut Unpacker<'_>,
        out: &mut Packer<'_>,
        slots: &[Slot],
        count: usize,
    ) -> Result<()> {
        let mut theirs = Vec::with_capacity(count);
        for _ in 0..count {
            theirs.push(values.clone());
            values.skip()?;
        }
        slots.iter().try_for_each(|slot| match slot {
            Slot::From(at, plan) => self.value(&mut theirs[*at], out, plan),
            Slot::Default(bytes) => out.raw(bytes),
        })
    }

    fn variant(
        &self,
        values: &mut Unpacker<'_>,
        out: &mut Packer<'_>,
        plans: &[Option<(u64, Plan)>],
        names: &[String],
    ) -> Result<()> {
        let (theirs, found) = values.variant()?;
        let theirs = usize::try_from(theirs).unwrap_or(usize::MAX);
        let Some(Some((number, plan))) = plans.get(theirs) else {
            let name = names.get(theirs).cloned();
            return Err(values.no_variant(name.unwrap_or_else(|| theirs.to_string())));
        };
        match plan {
            Plan::Fields(slots, count) => {
                values.variant_fields(found, *count)?;
                out.variant(*number, slots.len())?;
                values.deeper(|values| self.slots(values, out, slots, *count))
            }
            _ => {
                out.variant(*number, found)?;
                (0..found).try_for_each(|_| out.raw(values.skip()?))
            }
        }
    }
}
