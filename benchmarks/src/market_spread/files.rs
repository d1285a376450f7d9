//! The generated input of a run, as files, and the file of its results.

use std::path::PathBuf;

use millstream_cli::data::Kind;

use crate::scratch::Scratch;

/// A directory with the generated files, removed when this is dropped.
pub(super) struct InputFiles(Scratch);

impl InputFiles {
    pub(super) fn generate(seed: u64) -> Result<Self, String> {
        let dir = Scratch::new(&std::env::temp_dir()).map_err(|error| error.to_string())?;
        let data = InputFiles(dir);
        for kind in [
            Kind::MarketSpreadInitial,
            Kind::MarketSpreadNbbo,
            Kind::MarketSpreadOrders,
        ] {
            let path = data.path(kind);
            let write = || -> std::io::Result<()> {
                let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
                kind.write(kind.default_count(), seed, &kind.framing(), &mut file)?;
                std::io::Write::flush(&mut file)
            };
            write().map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(data)
    }

    /// Where the receiver writes the results.
    pub(super) fn results(&self) -> PathBuf {
        self.0.path().join("results.msg")
    }

    /// The file of a kind of messages.
    pub(super) fn path(&self, kind: Kind) -> PathBuf {
        self.0.path().join(match kind {
            Kind::MarketSpreadInitial => "initial.msg",
            Kind::MarketSpreadNbbo => "nbbo.msg",
            _ => "orders.msg",
        })
    }
}
