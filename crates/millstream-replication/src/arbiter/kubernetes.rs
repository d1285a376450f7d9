//! An arbiter in Kubernetes: the record is an annotation of a Lease, its version is the `resourceVersion` of that
//! object.
//!
//! The API server replaces an object only if the new one has the `resourceVersion` of the old one. The fields of the
//! Lease show to `kubectl get lease` what is in the record, and are never read. All else in the object stays as it
//! is.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use millstream_journal::clock::wall_ns;
use millstream_link::Deadline;
use serde_json::{Map, Value, json};
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{HeaderValue, Method, Request, StatusCode};

use super::http::{Answer, ArbiterTls, Client, Limits};
use super::{Arbiter, ArbiterError, LeaseRecord, Version};

/// The annotation.
const RECORD: &str = "millstream/record";
const API: &str = "coordination.k8s.io/v1";
/// Where a pod has the files of its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const NO_LEASE: &str = "the answer is no Lease";

/// What a pod knows of its API server.
pub(super) struct Pod {
    /// `HOST:PORT`.
    pub server: String,
    /// The directory with `token` and `ca.crt`.
    pub service_account: PathBuf,
}

impl Pod {
    /// From the variables that the kubelet sets.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let needed = |name: &str| {
            set(name).ok_or_else(|| {
                format!("this process is not in a pod of Kubernetes: there is no {name}")
            })
        };
        let host = needed("KUBERNETES_SERVICE_HOST")?;
        let port = needed("KUBERNETES_SERVICE_PORT_HTTPS")?;
        Ok(Pod {
            server: if host.contains(':') && !host.starts_with('[') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            },
            service_account: set("MILLSTREAM_SERVICE_ACCOUNT")
                .map_or_else(|| SERVICE_ACCOUNT.into(), PathBuf::from),
        })
    }
}

pub(super) struct KubernetesArbiter {
    namespace: String,
    name: String,
    /// The URL of the Leases of the namespace.
    leases: String,
    token: PathBuf,
    client: Client,
    timeout: Duration,
    /// The object that was read or written last.
    last: Mutex<Option<Value>>,
}

impl KubernetesArbiter {
    pub fn new(
        pod: &Pod,
        namespace: &str,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, ArbiterError> {
        let tls = ArbiterTls {
            ca: Some(pod.service_account.join("ca.crt")),
            certificate: None,
        };
        let client = Client::new(&tls)
            .map_err(|why| ArbiterError::new(format!("kubernetes:{namespace}/{name}"), why))?;
        Ok(KubernetesArbiter {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            leases: format!(
                "https://{}/apis/{API}/namespaces/{namespace}/leases",
                pod.server
            ),
            token: pod.service_account.join("token"),
            client,
            timeout,
            last: Mutex::new(None),
        })
    }

    fn failed(&self, text: impl std::fmt::Display) -> ArbiterError {
        ArbiterError::new(format!("kubernetes:{}/{}", self.namespace, self.name), text)
    }

    /// The object that was seen last, which is forgotten.
    fn take_last(&self) -> Option<Value> {
        self.last.lock().ok()?.take()
    }

    /// Remembers an object; returns its version.
    fn remember(&self, object: Value) -> Result<Version, ArbiterError> {
        let version = version_of(&object)
            .map(Version)
            .ok_or_else(|| self.failed(NO_LEASE))?;
        if let Ok(mut last) = self.last.lock() {
            *last = Some(object);
        }
        Ok(version)
    }

    fn ask(
        &self,
        method: Method,
        object: Option<&Value>,
        deadline: Deadline,
    ) -> Result<Answer, ArbiterError> {
        let Some(left) = deadline.left() else {
            return Err(self.failed(format_args!("no answer within {:?}", self.timeout)));
        };
        let url = if method == Method::POST {
            self.leases.clone()
        } else {
            format!("{}/{}", self.leases, self.name)
        };
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(AUTHORIZATION, self.authorization()?)
            .header(CONTENT_TYPE, "application/json")
            .body(object.map(Value::to_string).unwrap_or_default());
        let request = request.map_err(|error| self.failed(error))?;
        let limits = Limits {
            connect: left,
            whole: left,
        };
        let answer = self.client.send(request, &limits);
        answer.map_err(|why| self.failed(format_args!("{}: {why}", self.leases)))
    }

    /// The token, which the kubelet replaces before it expires.
    fn authorization(&self) -> Result<HeaderValue, ArbiterError> {
        let failed = |why: &dyn std::fmt::Display| {
            self.failed(format_args!("{}: {why}", self.token.display()))
        };
        let token = std::fs::read_to_string(&self.token).map_err(|error| failed(&error))?;
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| failed(&"this is no token"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// What an answer means that is neither the object nor that there is none.
    fn refused(&self, verb: &str, answer: &Answer) -> ArbiterError {
        let said = answer.explained("message");
        let KubernetesArbiter {
            namespace, name, ..
        } = self;
        self.failed(match answer.status {
            StatusCode::UNAUTHORIZED => {
                format!("the API server refuses the token of {}: {said}", self.token.display())
            }
            StatusCode::FORBIDDEN => format!(
                "the service account may not {verb} the Lease {name} in the namespace {namespace}: it needs the \
                 verbs get, create and update on leases of coordination.k8s.io: {said}"
            ),
            StatusCode::NOT_FOUND if answer.body["details"]["kind"] == "namespaces" => {
                format!("there is no namespace {namespace}: {said}")
            }
            _ => said,
        })
    }

    fn get(&self, deadline: Deadline) -> Result<Option<Value>, ArbiterError> {
        let answer = self.ask(Method::GET, None, deadline)?;
        match answer.status {
            StatusCode::OK if answer.body["kind"] == "Lease" => Ok(Some(answer.body)),
            StatusCode::OK => Err(self.failed(NO_LEASE)),
            StatusCode::NOT_FOUND if answer.body["details"]["kind"] == "leases" => Ok(None),
            _ => Err(self.refused("get", &answer)),
        }
    }

    /// Makes or replaces the object, unless there is another one.
    fn put(
        &self,
        method: Method,
        object: &Value,
        deadline: Deadline,
    ) -> Result<Option<Version>, ArbiterError> {
        let verb = if method == Method::POST {
            "create"
        } else {
            "update"
        };
        let answer = self.ask(method, Some(object), deadline)?;
        let said = &answer.body["details"]["kind"];
        let reason = &answer.body["reason"];
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => self.remember(answer.body).map(Some),
            StatusCode::CONFLICT if reason == "Conflict" || reason == "AlreadyExists" => Ok(None),
            // It was deleted.
            StatusCode::NOT_FOUND if verb == "update" && said == "leases" => Ok(None),
            _ => Err(self.refused(verb, &answer)),
        }
    }

    /// The record of a Lease. There is none if it was made for this arbiter, by hand.
    fn record_of(&self, object: &Value) -> Result<Option<LeaseRecord>, ArbiterError> {
        if let Some(text) = object["metadata"]["annotations"][RECORD].as_str() {
            return LeaseRecord::from_json(text)
                .map(Some)
                .map_err(|why| self.failed(why));
        }
        match object["spec"]["holderIdentity"].as_str().unwrap_or_default() {
            "" => Ok(None),
            holder => Err(self.failed(format_args!(
                "the Lease has the holder {holder}, and no annotation {RECORD}: it is that of another program"
            ))),
        }
    }
}

fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"]
        .as_str()
        .map(str::to_owned)
}

/// A part of an object, which is made if there is none.
fn part<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    let part = object.as_object_mut()?.entry(name).or_insert(Value::Null);
    if part.is_null() {
        *part = json!({});
    }
    part.as_object_mut()
}

/// Puts a record into a Lease that had this one before. Returns `None` if it is no Lease.
fn fill(
    object: &mut Value,
    before: Option<&LeaseRecord>,
    record: &LeaseRecord,
    now: Timestamp,
) -> Option<()> {
    part(object, "metadata")?;
    part(&mut object["metadata"], "annotations")?
        .insert(RECORD.to_owned(), record.to_json().into());
    let spec = part(object, "spec")?;
    // The API has six digits.
    let now = Value::from(format!("{now:.6}"));
    let is_same =
        |before: &LeaseRecord| (before.term, before.process) == (record.term, record.process);
    if !before.is_some_and(is_same) || !spec.contains_key("acquireTime") {
        spec.insert("acquireTime".to_owned(), now.clone());
    }
    spec.insert("renewTime".to_owned(), now);
    let number = |number: u64| Value::from(number.min(i32::MAX as u64));
    spec.insert(
        "leaseTransitions".to_owned(),
        number(record.term.saturating_sub(1)),
    );
    if record.lease_ms == 0 || record.holder.is_empty() {
        // It was given back.
        spec.remove("holderIdentity");
        spec.remove("leaseDurationSeconds");
    } else {
        spec.insert("holderIdentity".to_owned(), record.holder.as_str().into());
        spec.insert(
            "leaseDurationSeconds".to_owned(),
            number(record.lease_ms.div_ceil(1000)),
        );
    }
    Some(())
}

impl Arbiter for KubernetesArbiter {
    fn read(&self) -> Result<Option<(Version, LeaseRecord)>, ArbiterError> {
        self.take_last();
        let Some(object) = self.get(Deadline::after(self.timeout))? else {
            return Ok(None);
        };
        let Some(record) = self.record_of(&object)? else {
            return Ok(None);
        };
        Ok(Some((self.remember(object)?, record)))
    }

    fn replace(
        &self,
        version: Option<&Version>,
        record: &LeaseRecord,
    ) -> Result<Option<Version>, ArbiterError> {
        let deadline = Deadline::after(self.timeout);
        let asked = version.map(|version| version.0.as_str());
        let is_asked = |object: &Value| asked.is_some() && version_of(object).as_deref() == asked;
        let found = match self.take_last().filter(is_asked) {
            Some(object) => Some(object),
            None => self.get(deadline)?,
        };
        let before = found
            .as_ref()
            .map(|object| self.record_of(object))
            .transpose()?
            .flatten();
        let (method, mut object) = match found {
            Some(object) if before.is_none() && asked.is_none() => (Method::PUT, object),
            Some(object) if is_asked(&object) => (Method::PUT, object),
            None if asked.is_none() => {
                let metadata = json!({ "name": self.name, "namespace": self.namespace });
                (
                    Method::POST,
                    json!({ "apiVersion": API, "kind": "Lease", "metadata": metadata }),
                )
            }
            _ => return Ok(None),
        };
        let now = i128::from(wall_ns());
        let now = Timestamp::from_nanosecond(now).unwrap_or(Timestamp::UNIX_EPOCH);
        fill(&mut object, before.as_ref(), record, now).ok_or_else(|| self.failed(NO_LEASE))?;
        self.put(method, &object, deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(term: u64, lease_ms: u64) -> LeaseRecord {
        LeaseRecord {
            holder: "a".to_owned(),
            process: 7,
            term,
            lease_ms,
            ..LeaseRecord::default()
        }
    }

    #[test]
    fn a_lease_shows_what_is_in_the_record() {
        let mut object = json!({
            "metadata": { "labels": { "app": "shop" }, "annotations": { "team": "orders" } },
            "spec": { "strategy": "Other" },
        });
        let first = record(1, 4_001);
        let at = |second| Timestamp::from_second(second).unwrap();
        fill(&mut object, None, &first, at(0)).unwrap();
        assert_eq!(object["metadata"]["labels"]["app"], "shop");
        assert_eq!(object["metadata"]["annotations"]["team"], "orders");
        assert_eq!(object["metadata"]["annotations"][RECORD], first.to_json());
        let spec = json!({
            "strategy": "Other",
            "holderIdentity": "a",
            "leaseDurationSeconds": 5,
            "leaseTransitions": 0,
            "acquireTime": "1970-01-01T00:00:00.000000Z",
            "renewTime": "1970-01-01T00:00:00.000000Z",
        });
        assert_eq!(object["spec"], spec);

        fill(&mut object, Some(&first), &first, at(60)).unwrap();
        assert_eq!(object["spec"]["acquireTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(object["spec"]["renewTime"], "1970-01-01T00:01:00.000000Z");

        fill(&mut object, Some(&first), &record(u64::MAX, 1), at(120)).unwrap();
        assert_eq!(object["spec"]["acquireTime"], "1970-01-01T00:02:00.000000Z");
        assert_eq!(object["spec"]["leaseTransitions"], i32::MAX);
        assert_eq!(object["spec"]["leaseDurationSeconds"], 1);

        fill(&mut object, Some(&first), &record(1, 0), at(180)).unwrap();
        assert_eq!(object["spec"].get("holderIdentity"), None);
        assert_eq!(object["spec"].get("leaseDurationSeconds"), None);
    }

    #[test]
    fn what_is_no_lease_is_not_filled() {
        for mut object in [
            Value::Null,
            json!([]),
            json!({ "metadata": 1 }),
            json!({ "spec": "" }),
        ] {
            assert_eq!(
                fill(&mut object, None, &record(1, 1), Timestamp::UNIX_EPOCH),
                None
            );
        }
    }

    #[test]
    fn a_pod_knows_its_api_server() {
        let pod = |host: &'static str, dir: Option<&'static str>| {
            Pod::from_environment(|name| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT_HTTPS" => Some("443".to_owned()),
                "MILLSTREAM_SERVICE_ACCOUNT" => dir.map(str::to_owned),
                _ => None,
            })
        };
        let found = pod("10.96.0.1", None).unwrap();
        assert_eq!(found.server, "10.96.0.1:443");
        assert_eq!(found.service_account.to_str(), Some(SERVICE_ACCOUNT));
        let found = pod("fd00::1", Some("/run/account")).unwrap();
        assert_eq!(found.server, "[fd00::1]:443");
        assert_eq!(found.service_account.to_str(), Some("/run/account"));
        let error = pod("", None).err().unwrap();
        assert_eq!(
            error,
            "this process is not in a pod of Kubernetes: there is no KUBERNETES_SERVICE_HOST"
        );
    }
}
