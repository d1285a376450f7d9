//! Requests for the state of services: `GET /state/NAME/QUERY?key=VALUE`.

use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use millstream_flow::error::chain;
use millstream_service::{Arguments, Fault, ServiceError, ask};

use crate::refusal::{Answer, Refusal, json};
use crate::url::parameters;

/// The first part of the paths of queries.
pub(super) const STATE: &str = "state";
/// How long a request waits for a component.
const LIMIT: Duration = Duration::from_secs(10);
/// The parameter with the token of the reader.
const TOKEN: &str = "token";

/// Asks the service that writes to `output`; an empty name is the only query of its component. The arguments are texts.
pub(super) async fn answer(output: PathBuf, name: &str, query: &str) -> Result<Answer, Refusal> {
    let mut arguments = Arguments::new();
    for (key, value) in parameters(query)? {
        if key != TOKEN {
            arguments.insert(key, value.into());
        }
    }
    let name = name.to_owned();
    let asked = tokio::task::spawn_blocking(move || ask(&output, &name, arguments, LIMIT)).await;
    match asked {
        Ok(Ok(value)) => Ok(json(format!("{value}\n"))),
        Ok(Err(ServiceError::Asked { fault, reason, .. })) => {
            Err(Refusal::new(status(fault), reason))
        }
        Ok(Err(error)) => Err(failed(chain(&error).to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn failed(line: String) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, line)
}

fn status(fault: Fault) -> StatusCode {
    match fault {
        Fault::Absent => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Unknown => StatusCode::NOT_FOUND,
        Fault::Arguments => StatusCode::BAD_REQUEST,
        Fault::Late => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
