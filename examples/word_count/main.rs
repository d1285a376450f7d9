//! Word count: the lines of a file in, each word with its count out.

use std::env;
use std::error::Error;

use millstream::flow::{Emit, Flow, Options, files, stdout};

fn words(line: String) -> Vec<String> {
    line.split_whitespace().map(str::to_lowercase).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let book = env::var("BOOK").unwrap_or_else(|_| "book.txt".to_owned());
    let workers = env::var("WORKERS").map_or(Ok(1), |text| text.parse())?;

    let flow = Flow::new("word-count");
    flow.source("lines", files::lines(book))
        .flat_map(words)
        .key_by(|word| word.clone())
        .count(Emit::End)
        .items()
        .map(|(word, count)| format!("{count} {word}"))
        .sink("out", stdout::stdout());
    flow.run(Options::workers(workers))?;
    Ok(())
}
