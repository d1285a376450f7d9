//! The version of a program that was not given one: the digest of its executable.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use xxhash_rust::xxh3::Xxh3;

use crate::error::FlowError;

/// The bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// Returns the executable of this process, with the digest of its contents.
pub(super) fn executable() -> Result<(String, String), FlowError> {
    let digest = digest().map_err(|error| {
        FlowError::Usage(format!(
            "the version of the program is unknown, because its executable cannot be read ({error}); give it one: Flow::version"
        ))
    })?;
    Ok(("executable".to_owned(), format!("{digest:016x}")))
}

fn digest() -> std::io::Result<u64> {
    // The file that runs, also where another one has taken its name since.
    let running = PathBuf::from("/proc/self/exe");
    let mut file = match File::open(running) {
        Ok(file) => file,
        Err(_) => File::open(std::env::current_exe()?)?,
    };
    let mut hash = Xxh3::new();
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hash.digest()),
            count => hash.update(&bytes[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_has_a_digest_that_stays() {
        let (name, digest) = executable().expect("it is read");
        assert_eq!((name.as_str(), digest.len()), ("executable", 16));
        assert_eq!(executable().expect("it is read").1, digest);
    }
}
