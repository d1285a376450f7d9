//! The dialect of a CSV file: its delimiter, its quote, and the source of the field names.

/// The delimiter and the quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The byte between fields.
    pub delimiter: u8,
    /// The byte around a field that contains delimiters, quotes or line ends. `None`: quotes are ordinary
    /// characters.
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

/// The source of the field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// The first record of each file.
    First,
    /// These names; all records of a file are rows.
    Names(Vec<String>),
    /// Fields have no names; all records of a file are rows, with any number of fields.
    None,
}
