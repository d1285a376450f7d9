//! How a CSV file is written: what separates fields, and where their names come from.

/// What tells fields apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Between fields.
    pub delimiter: u8,
    /// Around a field that holds delimiters, quotes or line ends. None: quotes are characters like others.
    pub quote: Option<u8>,
}

impl Default for Dialect {
    fn default() -> Self {
        Dialect {
            delimiter: b',',
            quote: Some(b'"'),
        }
    }
}

/// Where the names of fields come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// The first record of each file.
    First,
    /// These, and all records of a file are rows.
    Names(Vec<String>),
    /// Fields have no names, and all records of a file are rows, of any number of fields.
    None,
}
