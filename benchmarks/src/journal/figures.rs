//! The rows of the report, each with every run.

use std::fmt;

use serde::Serialize;

use crate::figures::median_index;

/// The body of each record that carries no value of its own.
pub const BODY: [u8; 64] = [b'x'; 64];

/// The error of a benchmark.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The median of the runs.
    pub median: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What we want to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<&'static str>,
    /// Every run.
    pub runs: Vec<f64>,
}

/// All figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
}

impl Figures {
    /// Add what one run gave for a row.
    pub fn add(&mut self, name: &str, value: f64, unit: &'static str, aim: Option<&'static str>) {
        let known = self.rows.iter_mut().find(|row| row.name == name);
        match known {
            Some(row) => row.runs.push(value),
            None => self.rows.push(Row {
                name: name.to_owned(),
                median: value,
                unit,
                aim,
                runs: vec![value],
            }),
        }
    }

    /// Adds a line on a row that could not be measured.
    pub fn miss(&mut self, why: String) {
        if !self.missing.contains(&why) {
            self.missing.push(why);
        }
    }

    /// Takes the median of each row.
    pub fn take_medians(&mut self) {
        for row in &mut self.rows {
            row.median = row.runs[median_index(&row.runs)];
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<66} {:>10}   aim", "", "median")?;
        for row in &self.rows {
            let value = match row.median {
                value if value >= 1e4 => format!("{value:.0}"),
                value if value >= 10.0 => format!("{value:.1}"),
                value => format!("{value:.3}"),
            };
            let aim = row.aim.unwrap_or("");
            write!(f, "\n{:<58} {value:>12} {:<9} {aim}", row.name, row.unit)?;
        }
        for why in &self.missing {
            write!(f, "\nnot measured: {why}")?;
        }
        Ok(())
    }
}
