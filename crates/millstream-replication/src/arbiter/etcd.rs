//! An arbiter in etcd: the record is the value of a key, its version is the revision in which the key was last changed.
//!
//! etcd is asked through its JSON gateway, `/v3/kv/`, which versions 3.4 and newer have. The gateway takes
//! certificates of clients, but no names of users. A read is linearizable. No lease of etcd is used.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millstream_link::Deadline;
use serde_json::{Value, json};
use ureq::http::Request;
use ureq::http::header::CONTENT_TYPE;

use super::http::{ArbiterTls, Client, Limits, NoAnswer};
use super::{Arbiter, ArbiterError, LeaseRecord, Version};

const NO_ETCD: &str = "this is no answer of etcd";

pub(super) struct EtcdArbiter {
    address: String,
    client: Client,
    /// Their URLs.
    endpoints: Vec<String>,
    /// The one that is asked first: the last one that has answered, or the one after it if it did not.
    first: AtomicUsize,
    /// The number of the cluster, by the first answer.
    cluster: OnceLock<String>,
    /// In base64.
    key: String,
    timeout: Duration,
}

impl EtcdArbiter {
    /// `address` names it in errors.
    pub fn new(
        address: String,
        endpoints: Vec<String>,
        key: &str,
        tls: &ArbiterTls,
        timeout: Duration,
    ) -> Result<Self, ArbiterError> {
        let client = Client::new(tls).map_err(|why| ArbiterError::new(address.as_str(), why))?;
        Ok(EtcdArbiter {
            address,
            client,
            endpoints,
            first: AtomicUsize::new(0),
            cluster: OnceLock::new(),
            key: BASE64_STANDARD.encode(key),
            timeout,
        })
    }

    fn failed(&self, text: impl std::fmt::Display) -> ArbiterError {
        ArbiterError::new(self.address.as_str(), text)
    }

    /// Asks one endpoint after another, until one answers. What changes the record is sent to one only: without an
    /// answer it may have been done.
    fn ask(&self, path: &str, body: &Value, changes: bool) -> Result<Value, ArbiterError> {
        let deadline = Deadline::after(self.timeout);
        let first = self.first.load(Ordering::Relaxed);
        let count = self.endpoints.len();
        let mut failures = Vec::new();
        for tried in 0..count {
            let Some(left) = deadline.left() else { break };
            // One that cannot be reached leaves time for the others.
            let limits = Limits {
                connect: left / u32::try_from(count - tried).unwrap_or(u32::MAX),
                whole: left,
            };
            let number = (first + tried) % count;
            let endpoint = &self.endpoints[number];
            match self.ask_endpoint(endpoint, path, body, &limits) {
                Ok(answer) => {
                    self.first.store(number, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(failure) => {
                    self.first.store((number + 1) % count, Ordering::Relaxed);
                    failures.push(format!("{endpoint}: {failure}"));
                    if changes && !failure.is_unsent {
                        break;
                    }
                }
            }
        }
        Err(self.failed(if failures.is_empty() {
            format!("no answer within {:?}", self.timeout)
        } else {
            failures.join("; ")
        }))
    }

    fn ask_endpoint(
        &self,
        endpoint: &str,
        path: &str,
        body: &Value,
        limits: &Limits,
    ) -> Result<Value, NoAnswer> {
        let request = Request::post(format!("{endpoint}/v3/kv/{path}"))
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let request = request.map_err(|error| NoAnswer::unsent(error.to_string()))?;
        let answer = self.client.send(request, limits)?;
        if !answer.status.is_success() {
            return Err(NoAnswer::sent(answer.explained("error")));
        }
        self.check_cluster(&answer.body).map_err(NoAnswer::sent)?;
        Ok(answer.body)
    }

    /// Endpoints of several clusters would be several arbiters, and a cluster that was made anew has other records.
    fn check_cluster(&self, answer: &Value) -> Result<(), String> {
        let found = number(&answer["header"]["cluster_id"]).ok_or(NO_ETCD)?;
        let known = self.cluster.get_or_init(|| found.clone());
        if *known == found {
            Ok(())
        } else {
            Err(format!(
                "it is of the cluster {found}, and the first answer was of {known}: name endpoints of one cluster; \
                 if the cluster was made anew, start this program again"
            ))
        }
    }

    /// The revision in which the key was changed, and its value.
    fn get(&self) -> Result<Option<(String, String)>, ArbiterError> {
        let answer = self.ask("range", &json!({ "key": self.key }), false)?;
        let Some(found) = answer["kvs"].get(0) else {
            return Ok(None);
        };
        let wrong = || self.failed(NO_ETCD);
        let revision = number(&found["mod_revision"]).ok_or_else(wrong)?;
        let value = found["value"].as_str().unwrap_or_default();
        let value = BASE64_STANDARD.decode(value).map_err(|_| wrong())?;
        Ok(Some((
            revision,
            String::from_utf8_lossy(&value).into_owned(),
        )))
    }
}

/// What replaces the value of a key of this revision; 0: there is no such key.
fn transaction(key: &str, revision: &str, value: &str) -> Value {
    let put = json!({ "key": key, "value": BASE64_STANDARD.encode(value) });
    json!({
        "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision }],
        "success": [{ "request_put": put }],
    })
}

/// A number of 64 bits, which is a string in this JSON.
fn number(value: &Value) -> Option<String> {
    match value {
        Value::String(number) => Some(number.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

impl Arbiter for EtcdArbiter {
    fn read(&self) -> Result<Option<(Version, LeaseRecord)>, ArbiterError> {
        let Some((revision, value)) = self.get()? else {
            return Ok(None);
        };
        let record = LeaseRecord::from_json(&value).map_err(|why| self.failed(why))?;
        Ok(Some((Version(revision), record)))
    }

    fn replace(
        &self,
        version: Option<&Version>,
        record: &LeaseRecord,
    ) -> Result<Option<Version>, ArbiterError> {
        let revision = version.map_or("0", |version| version.0.as_str());
        let body = transaction(&self.key, revision, &record.to_json());
        let answer = self.ask("txn", &body, true)?;
        if answer["succeeded"].as_bool() != Some(true) {
            return Ok(None);
        }
        // The revision of the transaction, which is that of its only change.
        match number(&answer["header"]["revision"]) {
            Some(revision) => Ok(Some(Version(revision))),
            None => Err(self.failed(NO_ETCD)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_transaction_is_that_of_the_gateway() {
        assert_eq!(
            transaction("a2V5", "17", "{}").to_string(),
            r#"{"compare":[{"key":"a2V5","mod_revision":"17","result":"EQUAL","target":"MOD"}],"#
                .to_owned()
                + r#""success":[{"request_put":{"key":"a2V5","value":"e30="}}]}"#
        );
    }

    #[test]
    fn a_number_may_be_a_string() {
        assert_eq!(
            number(&json!("9007199254740993")).as_deref(),
            Some("9007199254740993")
        );
        assert_eq!(number(&json!(7)).as_deref(), Some("7"));
        assert_eq!(number(&Value::Null), None);
    }
}
