//! The Python classes that an interface names: structs, enums and unions.

use millstream_wire::Type;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A struct or an enum of an interface.
pub(super) enum Named {
    Struct(PyStruct),
    /// The members of an `enum.Enum`, in the order of the schema.
    Enum(Vec<Py<PyAny>>),
    /// The classes of a union, in the order of the schema: an enum whose variants have fields.
    Union(Vec<PyStruct>),
}

/// A class whose objects are fields in a record.
pub(super) struct PyStruct {
    pub class: Py<PyAny>,
    pub fields: Vec<PyField>,
    /// Whether the class takes its fields by position.
    pub positional: bool,
}

/// A field or an argument.
pub(super) struct PyField {
    pub name: Py<PyString>,
    pub ty: Type,
}
