//! `millstream generate`: write a file of test data.

use std::fs::File;
use std::path::PathBuf;

use millstream_flow::framing::Framing;

use crate::data::Kind;
use crate::failure::Failure;

/// The options of `millstream generate`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream generate market-spread-orders --out orders.msg --seed 42"
)]
pub(super) struct Args {
    /// What to generate.
    kind: Kind,
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How many messages [default: 350 initial quotes, 350000 of all else].
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// The seed: the same seed gives the same file.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// u8, u16, u16le, u32, u32le, lines or fixed:N [default: that of the kind].
    #[arg(long)]
    framing: Option<Framing>,
}

/// Write the file.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("cannot write '{}': {error}", args.out.display()));
    let mut file = File::create(&args.out).map_err(failed)?;
    let framing = args.framing.clone().unwrap_or_else(|| args.kind.framing());
    let count = args.count.unwrap_or_else(|| args.kind.default_count());
    args.kind
        .write(count, args.seed, &framing, &mut file)
        .map_err(failed)
}
