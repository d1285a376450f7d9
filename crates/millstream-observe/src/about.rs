//! What a process is: its version, its command line without secrets, and its number.

/// Words in the name of an argument whose value is a secret, unless it names a file.
const SECRET: [&str; 5] = ["pass", "secret", "token", "credential", "apikey"];
const WITHHELD: &str = "***";

/// A fact about the process: its name, and what it is.
pub(crate) type Fact = (String, String);

/// Returns the facts about this process.
pub(crate) fn facts() -> Vec<Fact> {
    let arguments = std::env::args_os().map(|one| one.to_string_lossy().into_owned());
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("version", env!("CARGO_PKG_VERSION").to_owned()),
        fact("process id", std::process::id().to_string()),
        fact("command line", without_secrets(arguments)),
    ]
}

/// The arguments in one line. A secret is the value of an argument that is named so, and the password of a URL.
fn without_secrets(arguments: impl Iterator<Item = String>) -> String {
    let mut shown = Vec::new();
    let mut is_secret = false;
    for argument in arguments {
        if is_secret && !argument.starts_with('-') {
            shown.push(WITHHELD.to_owned());
            is_secret = false;
            continue;
        }
        is_secret = argument.starts_with('-') && !argument.contains('=') && names_secret(&argument);
        let words = argument.split(' ').map(without_secret);
        shown.push(words.collect::<Vec<_>>().join(" "));
    }
    shown.join(" ")
}

/// A word without the value of `password=VALUE` and the password of `scheme://user:password@host`.
fn without_secret(word: &str) -> String {
    if let Some((name, _)) = word.split_once('=')
        && names_secret(name)
    {
        return format!("{name}={WITHHELD}");
    }
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:{WITHHELD}@{host}{path}")
        }
        _ => word.to_owned(),
    }
}

fn names_secret(name: &str) -> bool {
    let name = name.to_lowercase().replace(['-', '_'], "");
    !name.ends_with("file") && SECRET.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_withheld() {
        for (given, shown) in [
            ("run a.py --workers 2", "run a.py --workers 2"),
            (
                "run --http-token-file /t --state s",
                "run --http-token-file /t --state s",
            ),
            ("a --db-password hunter2 --x 1", "a --db-password *** --x 1"),
            (
                "a --api-token=abc PGPASSWORD=x",
                "a --api-token=*** PGPASSWORD=***",
            ),
            ("a --verbose-token --x 1", "a --verbose-token --x 1"),
            (
                "a postgres://me:p@ss:w@db/x?y=1 http://h/p@q",
                "a postgres://me:***@db/x?y=1 http://h/p@q",
            ),
        ] {
            let arguments = given.split(' ').map(str::to_owned);
            assert_eq!(without_secrets(arguments), shown, "{given}");
        }
        let one = "host=db password=hunter2 user=me".to_owned();
        assert_eq!(
            without_secrets([one].into_iter()),
            "host=db password=*** user=me"
        );
    }
}
