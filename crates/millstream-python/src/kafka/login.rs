//! The settings of a client, with the function that makes the tokens of its login.

use millstream_kafka::{Settings, Token};
use pyo3::prelude::*;

/// Returns settings with a function of the user that returns a `millstream.kafka.Token`.
pub(crate) fn login(settings: Vec<(String, String)>, token: Option<Py<PyAny>>) -> Settings {
    let settings = Settings::from_iter(settings);
    match token {
        Some(make) => settings.with_token(move || {
            let made = Python::attach(|py| read(make.bind(py)));
            Ok(made?)
        }),
        None => settings,
    }
}

/// Calls the function. What it returns is in no error: it may be a secret.
fn read(make: &Bound<'_, PyAny>) -> PyResult<Token> {
    let made = make.call0()?;
    let of = |name: &str| {
        made.getattr(name).map_err(|_| {
            let found = made.get_type().qualname();
            let found = found.map_or_else(|_| "another object".to_owned(), |it| it.to_string());
            let said = format!("token returned {found}, not a millstream.kafka.Token");
            pyo3::exceptions::PyTypeError::new_err(said)
        })
    };
    let value: String = of("value")?.extract()?;
    let ends: f64 = of("ends")?.extract()?;
    let principal: String = of("principal")?.extract()?;
    Ok(Token::new(value, (ends * 1000.0) as i64).principal(principal))
}
