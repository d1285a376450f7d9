//! A batch of rows, and one row of it.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use super::place::{self, CsvPath};
use crate::batch::Batch;
use crate::error::{Cause, shorten};

/// A batch of rows of one file.
#[derive(Clone, Debug, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Rows {
    /// The fields of all rows, without quotes, concatenated.
    pub(super) data: Vec<u8>,
    /// The end of each field in `data`.
    pub(super) ends: Vec<u32>,
    /// The file from the first row on, to the last one at least: it may be another one when a row turns out to be none.
    pub(super) raw: Vec<u8>,
    pub(super) rows: Vec<End>,
    pub(super) file: Option<Arc<CsvFile>>,
}

/// Where a row is, and where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Its offset in the file.
    pub(super) offset: u64,
    /// The number of fields up to its end.
    pub(super) fields: u32,
    /// The number of its bytes in the file, with the end of its line.
    pub(super) length: u32,
}

/// The file of the rows.
#[derive(Debug)]
pub(super) struct CsvFile {
    pub(super) about: Arc<CsvPath>,
    pub(super) header: Option<Vec<String>>,
}

impl Batch for Rows {
    fn len(&self) -> usize {
        self.rows.len()
    }
    fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
        self.raw.clear();
        self.rows.clear();
    }
    fn take_first(&mut self, count: usize) -> Self {
        let count = count.min(self.rows.len());
        let rows = self.rows.split_off(count);
        let first = self.rows.last().map_or(0, |end| end.fields);
        let offset = |rows: &[End]| rows.first().map(|end| end.offset);
        let raw = match (offset(&self.rows), offset(&rows)) {
            (Some(from), Some(to)) => self.raw.split_off((to - from) as usize),
            (None, _) => std::mem::take(&mut self.raw),
            (_, None) => Vec::new(),
        };
        let ends = self.ends.split_off(first as usize);
        let bytes = self.ends.last().copied().unwrap_or(0);
        let data = self.data.split_off(bytes as usize);
        let rest = Rows {
            data,
            ends: ends.into_iter().map(|end| end - bytes).collect(),
            raw,
            rows: rows
                .into_iter()
                .map(|end| End {
                    fields: end.fields - first,
                    ..end
                })
                .collect(),
            file: self.file.clone(),
        };
        std::mem::replace(self, rest)
    }
}

impl Rows {
    /// Returns row `index`, or `None` if there are fewer rows.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Row<'_>> {
        let end = self.rows.get(index)?;
        let first = match index {
            0 => 0,
            _ => self.rows[index - 1].fields,
        };
        Some(Row {
            rows: self,
            offset: end.offset,
            first: first as usize,
            end: end.fields as usize,
            length: end.length as usize,
        })
    }

    /// Iterates over all rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.len()).filter_map(|index| self.get(index))
    }

    /// Returns the names of the fields, if they have names.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.file.as_ref()?.header.as_deref()
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    rows: &'a Rows,
    offset: u64,
    first: usize,
    end: usize,
    length: usize,
}

impl<'a> Row<'a> {
    /// Returns the number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.first
    }
    /// True if there are none, which does not occur in a file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the bytes of field `index`, from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let at = self.first + index;
        if at >= self.end {
            return None;
        }
        let start = match at {
            0 => 0,
            _ => self.rows.ends[at - 1],
        };
        self.rows
            .data
            .get(start as usize..self.rows.ends[at] as usize)
    }
    /// Returns field `index`, from 0, as text.
    ///
    /// # Errors
    /// There is no such field, or it is not UTF-8; the error names file, line and column.
    pub fn text(&self, index: usize) -> Result<&'a str, Cause> {
        let Some(bytes) = self.get(index) else {
            let what = format!("the row has {} fields, not {}", self.len(), index + 1);
            return Err(self.wrong(self.len(), &what));
        };
        std::str::from_utf8(bytes).map_err(|_| self.wrong(index, "the field is not UTF-8"))
    }
    /// Returns the names of the fields, if they have names.
    #[must_use]
    pub fn names(&self) -> Option<&'a [String]> {
        self.rows.names()
    }
    /// Returns the field `name` as text.
    ///
    /// # Errors
    /// There is no field of this name, or it is not UTF-8; the error names file and line.
    pub fn text_of(&self, name: &str) -> Result<&'a str, Cause> {
        self.text(self.index_of(name)?)
    }
    /// Returns the field `name` as a value of type `T`.
    ///
    /// # Errors
    /// There is no field of this name, or its text is no `T`; the error names file, line and column.
    pub fn parse<T>(&self, name: &str) -> Result<T, Cause>
    where
        T: FromStr<Err: Display>,
    {
        let index = self.index_of(name)?;
        let text = self.text(index)?;
        text.parse().map_err(|error| {
            let text = shorten(text);
            self.wrong(index, &format!("the field {name} has {text:?}: {error}"))
        })
    }
    fn index_of(&self, name: &str) -> Result<usize, Cause> {
        let names = self.names().unwrap_or_default();
        let index = names.iter().position(|other| other == name);
        index.ok_or_else(|| self.wrong(0, &format!("there is no field with the name {name:?}")))
    }
    /// Returns the offset of the first byte of the row in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// Returns the bytes of the row as they are in the file, without the end of the line.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        let from = self.rows.rows.first().map_or(0, |first| first.offset);
        let start = (self.offset - from) as usize;
        let mut raw = &self.rows.raw[start..start + self.length];
        while let [record @ .., b'\n' | b'\r'] = raw {
            raw = record;
        }
        raw
    }
    /// Returns the place of the row, path and line. It reads the file up to there.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.rows.file {
            Some(file) => place::of_record(&file.about, self.offset),
            None => format!("offset {}", self.offset),
        }
    }
    /// Checks that the number of fields is the number of names.
    ///
    /// # Errors
    /// The numbers differ; the error names file, line and column.
    pub fn check(&self) -> Result<(), Cause> {
        let names = self.names().map_or(self.len(), <[String]>::len);
        if names == self.len() {
            return Ok(());
        }
        let what = format!("the row has {} fields, the header {names}", self.len());
        Err(self.wrong(names.min(self.len()), &what))
    }
    /// Returns an error about field `index`, with file, line and column. It reads the file up to there.
    #[must_use]
    pub fn wrong(&self, index: usize, what: &str) -> Cause {
        match &self.rows.file {
            Some(file) => place::field_error(&file.about, self.offset, index, what).into(),
            None => what.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divided_rows_keep_their_bytes() {
        let file = "a\r\n\nbb\nc";
        let end = |offset, fields, length| End {
            offset,
            fields,
            length,
        };
        let rows = || Rows {
            data: b"abbc".to_vec(),
            ends: vec![1, 3, 4],
            raw: file.as_bytes().to_vec(),
            // The first one begins after other batches.
            rows: vec![end(90, 1, 2), end(94, 2, 3), end(97, 3, 1)],
            file: None,
        };
        let all = |rows: &Rows| -> Vec<(Vec<u8>, Vec<u8>)> {
            let row = |index| rows.get(index).unwrap();
            let pair = |row: Row<'_>| (row.raw().to_vec(), row.get(0).unwrap().to_vec());
            (0..rows.len()).map(|index| pair(row(index))).collect()
        };
        let expected = all(&rows());
        assert_eq!(expected[1], (b"bb".to_vec(), b"bb".to_vec()));
        for count in 0..5 {
            let mut rest = rows();
            let first = rest.take_first(count);
            assert_eq!([all(&first), all(&rest)].concat(), expected, "{count}");
        }
    }
}
