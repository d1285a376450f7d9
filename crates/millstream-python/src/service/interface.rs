//! An interface as Python describes it: a schema, and for each type how its Python objects are made and read.

use millstream_wire::{Definition, Field, Method, Schema, Shape, Type, Variant};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::classes::{Named, PyField, PyStruct};
use super::encode::{encode, packed};
use crate::error::service_error;

/// A method of an interface.
pub(super) struct PyMethod {
    pub name: String,
    pub arguments: Vec<PyField>,
}

/// An interface: `Interface(name, version, definitions, methods)`.
///
/// A definition is `(name, class, fields, positional)` for a struct, `(name, members)` for an enum, `(name, structs,
/// "union")` for a union, whose variants are such structs; a method `(name, aliases, fields)`; a field `(name, type,
/// aliases, default or ())`, the default in a tuple; a type a name, or a tuple `("list", type)`, `("option", type)`,
/// `("map", key, value)`, `("named", index)`.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Interface {
    pub(super) schema: Schema,
    pub(super) named: Vec<Named>,
    pub(super) methods: Vec<PyMethod>,
}

#[pymethods]
impl Interface {
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        version: u32,
        definitions: Vec<Bound<'_, PyTuple>>,
        methods: Vec<(String, Vec<String>, Vec<Bound<'_, PyTuple>>)>,
    ) -> PyResult<Self> {
        let mut named = Vec::new();
        let mut described = Vec::new();
        // Defaults may be of any of the types, so they are encoded when all of them are known.
        for definition in &definitions {
            let (definition, read) = define(definition)?;
            described.push(definition);
            named.push(read);
        }
        let bare = Schema::new(name, version, Vec::new(), described.clone());
        let bare = bare.map_err(|error| service_error(py, error))?;
        for (definition, given) in described.iter_mut().zip(&definitions) {
            match &mut definition.shape {
                Shape::Struct(fields) => {
                    add_defaults(fields, &fields_of(given)?, &named, &bare)?;
                }
                Shape::Enum(variants) if given.len() == 3 => {
                    for (variant, given) in variants.iter_mut().zip(parts_of(given)?) {
                        add_defaults(&mut variant.fields, &fields_of(&given)?, &named, &bare)?;
                    }
                }
                Shape::Enum(_) => {}
            }
        }
        let mut schema_methods = Vec::new();
        let mut read = Vec::new();
        for (name, aliases, given) in methods {
            let mut fields = given.iter().map(field).collect::<PyResult<Vec<_>>>()?;
            let arguments = fields.iter().map(|field| py_field(py, field)).collect();
            add_defaults(&mut fields, &given, &named, &bare)?;
            read.push(PyMethod {
                name: name.clone(),
                arguments,
            });
            schema_methods.push(Method {
                aliases,
                ..Method::new(name, fields)
            });
        }
        let schema = Schema::new(name, version, schema_methods, described);
        Ok(Self {
            schema: schema.map_err(|error| service_error(py, error))?,
            named,
            methods: read,
        })
    }

    /// The number that stands for this interface, with all its types, in records.
    #[getter]
    fn id(&self) -> u32 {
        self.schema.id()
    }

    /// The interface's name.
    #[getter]
    fn name(&self) -> &str {
        self.schema.interface()
    }
}

fn define(definition: &Bound<'_, PyTuple>) -> PyResult<(Definition, Named)> {
    let name: String = definition.get_item(0)?.extract()?;
    let (shape, named) = match definition.len() {
        2 => {
            let members: Vec<(String, Bound<'_, PyAny>)> = definition.get_item(1)?.extract()?;
            let variant = |(name, _): &(String, _)| Variant::new(name.clone(), Vec::new());
            let shape = Shape::Enum(members.iter().map(variant).collect());
            let members = members.into_iter().map(|(_, member)| member.unbind());
            (shape, Named::Enum(members.collect()))
        }
        3 => {
            let mut variants = Vec::new();
            let mut structs = Vec::new();
            for part in parts_of(definition)? {
                let (fields, own) = of_struct(&part)?;
                variants.push(Variant::new(part.get_item(0)?.extract::<String>()?, fields));
                structs.push(own);
            }
            (Shape::Enum(variants), Named::Union(structs))
        }
        _ => {
            let (fields, own) = of_struct(definition)?;
            (Shape::Struct(fields), Named::Struct(own))
        }
    };
    Ok((Definition { name, shape }, named))
}

/// The structs of a union, as Python passes them.
fn parts_of<'py>(union: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    union.get_item(1)?.extract()
}

/// The fields of a struct, as Python passes them.
fn fields_of<'py>(of: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    of.get_item(2)?.extract()
}

fn of_struct(given: &Bound<'_, PyTuple>) -> PyResult<(Vec<Field>, PyStruct)> {
    let py = given.py();
    let fields = fields_of(given)?;
    let fields = fields.iter().map(field).collect::<PyResult<Vec<_>>>()?;
    let own = PyStruct {
        class: given.get_item(1)?.unbind(),
        fields: fields.iter().map(|field| py_field(py, field)).collect(),
        positional: given.get_item(3)?.extract()?,
    };
    Ok((fields, own))
}

fn py_field(py: Python<'_>, field: &Field) -> PyField {
    PyField {
        name: PyString::intern(py, &field.name).unbind(),
        ty: field.ty.clone(),
    }
}

fn field(given: &Bound<'_, PyTuple>) -> PyResult<Field> {
    let name: String = given.get_item(0)?.extract()?;
    Ok(Field {
        aliases: given.get_item(2)?.extract()?,
        ..Field::new(name, ty(&given.get_item(1)?)?)
    })
}

fn add_defaults(
    fields: &mut [Field],
    given: &[Bound<'_, PyTuple>],
    named: &[Named],
    schema: &Schema,
) -> PyResult<()> {
    for (field, given) in fields.iter_mut().zip(given) {
        let default = given.get_item(3)?;
        if let Ok(value) = default.get_item(0) {
            let encoded = packed(|out| encode(&value, &field.ty, named, schema, out));
            field.default =
                Some(encoded.map_err(|error| error.into_python(value.py(), &field.name))?);
        }
    }
    Ok(())
}

fn ty(given: &Bound<'_, PyAny>) -> PyResult<Type> {
    if let Ok(name) = given.extract::<String>() {
        return Ok(match name.as_str() {
            "bool" => Type::Bool,
            "i8" => Type::I8,
            "i16" => Type::I16,
            "i32" => Type::I32,
            "i64" => Type::I64,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "char" => Type::Char,
            "str" => Type::Str,
            "bytes" => Type::Bytes,
            "timestamp" => Type::Timestamp,
            "decimal" => Type::Decimal,
            other => return Err(PyTypeError::new_err(format!("there is no type {other}"))),
        });
    }
    let given = given.cast::<PyTuple>()?;
    let kind: String = given.get_item(0)?.extract()?;
    let inner = |at| ty(&given.get_item(at)?).map(Box::new);
    Ok(match kind.as_str() {
        "option" => Type::Option(inner(1)?),
        "list" => Type::List(inner(1)?),
        "map" => Type::Map(inner(1)?, inner(2)?),
        _ => Type::Named(given.get_item(1)?.extract()?),
    })
}
