//! The part of an API server that has Leases, after its conventions: a `Status` for each error, and versions that
//! only grow.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Builder;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::super::kubernetes::Pod;
use super::super::{free_address, make_certificates};

pub const NAMESPACE: &str = "shop";
pub const TOKEN: &str = "a-token";
pub const OTHER_TOKEN: &str = "another-token";

/// A server that runs until the process ends.
pub struct ApiServer {
    /// With its certificates, and what a pod has.
    folder: TempDir,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    /// `Null`: there is none.
    lease: Value,
    revision: u64,
    token: &'static str,
    forbidden: Vec<&'static str>,
    requests: usize,
    fixed: Option<(u16, String)>,
}

impl ApiServer {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind(free_address()).unwrap();
        let address = listener.local_addr().unwrap();
        make_certificates(folder.path(), address.ip());
        std::fs::copy(folder.path().join("ca.pem"), folder.path().join("ca.crt")).unwrap();
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let state = Arc::new(Mutex::new(State {
            lease: Value::Null,
            revision: 41,
            token: TOKEN,
            forbidden: Vec::new(),
            requests: 0,
            fixed: None,
        }));
        let config = tls(folder.path());
        let shared = Arc::clone(&state);
        let accept = move || {
            for stream in listener.incoming() {
                let config = Arc::clone(&config);
                let shared = Arc::clone(&shared);
                let serve = move || drop(serve(stream.unwrap(), config, &shared));
                Builder::new().spawn(serve).unwrap();
            }
        };
        Builder::new().spawn(accept).unwrap();
        ApiServer {
            folder,
            address,
            state,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What a pod knows.
    pub fn pod(&self) -> Pod {
        Pod {
            server: self.address.to_string(),
            service_account: self.folder.path().to_owned(),
        }
    }

    pub fn lease(&self) -> Option<Value> {
        Some(self.state().lease.clone()).filter(|lease| !lease.is_null())
    }

    /// Makes or deletes the Lease, as someone else.
    pub fn put_lease(&self, lease: Value) {
        let mut state = self.state();
        state.lease = Value::Null;
        if !lease.is_null() {
            state.create(lease);
        }
    }

    pub fn forbid(&self, verbs: &[&'static str]) {
        self.state().forbidden = verbs.to_vec();
    }

    /// From now on only this token is right.
    pub fn take_token(&self, token: &'static str) {
        self.state().token = token;
    }

    /// From now on this is the answer to all.
    pub fn answer_with(&self, code: u16, body: &str) {
        self.state().fixed = Some((code, body.to_owned()));
    }

    pub fn requests(&self) -> usize {
        self.state().requests
    }
}

fn tls(folder: &Path) -> Arc<ServerConfig> {
    let chain = CertificateDer::from_pem_file(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    Arc::new(config)
}

/// Answers the requests of a connection.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    state: &Mutex<State>,
) -> std::io::Result<()> {
    let tls = ServerConnection::new(config).unwrap();
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    loop {
        let mut first = String::new();
        let mut authorization = String::new();
        let mut length = 0;
        if stream.read_line(&mut first)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            match line.trim().split_once(": ") {
                None => break,
                Some((name, value)) => match name.to_ascii_lowercase().as_str() {
                    "authorization" => value.clone_into(&mut authorization),
                    "content-length" => length = value.parse().unwrap(),
                    _ => {}
                },
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let words: Vec<_> = first.split(' ').collect();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (code, body) = state
            .lock()
            .unwrap()
            .answer(words[0], words[1], &authorization, body);
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {code} \r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.get_mut().write_all((head + &body).as_bytes())?;
    }
}

impl State {
    fn answer(
        &mut self,
        method: &str,
        path: &str,
        authorization: &str,
        object: Value,
    ) -> (u16, String) {
        self.requests += 1;
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let (code, body) = if authorization == format!("Bearer {}", self.token) {
            self.decide(method, path, object)
        } else {
            status(401, "Unauthorized", "", "", "Unauthorized")
        };
        (code, body.to_string())
    }

    fn decide(&mut self, method: &str, path: &str, object: Value) -> (u16, Value) {
        let rest = path
            .strip_prefix("/apis/coordination.k8s.io/v1/namespaces/")
            .unwrap();
        let (namespace, rest) = rest.split_once("/leases").unwrap();
        let verb = match method {
            "GET" => "get",
            "PUT" => "update",
            "POST" => "create",
            _ => panic!("{method}"),
        };
        let name = rest
            .strip_prefix('/')
            .or(object["metadata"]["name"].as_str())
            .unwrap();
        let name = name.to_owned();
        if self.forbidden.contains(&verb) {
            let why = format!(
                "User \"system:serviceaccount:shop:default\" cannot {verb} resource \"leases\""
            );
            return status(
                403,
                "Forbidden",
                "leases",
                &name,
                &format!("is forbidden: {why}"),
            );
        }
        match verb {
            "create" if namespace != NAMESPACE => {
                status(404, "NotFound", "namespaces", namespace, "not found")
            }
            "create" if !self.lease.is_null() => {
                status(409, "AlreadyExists", "leases", &name, "already exists")
            }
            "create" => {
                assert_eq!(object["metadata"].get("resourceVersion"), None);
                check(&object);
                self.create(object);
                (201, self.lease.clone())
            }
            _ if namespace != NAMESPACE || self.lease.is_null() => {
                status(404, "NotFound", "leases", &name, "not found")
            }
            "get" => (200, self.lease.clone()),
            _ => self.update(object),
        }
    }

    fn create(&mut self, mut object: Value) {
        self.revision += 7;
        object["kind"] = "Lease".into();
        object["apiVersion"] = "coordination.k8s.io/v1".into();
        object["metadata"]["uid"] = format!("uid-{}", self.revision).into();
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.lease = object;
    }

    fn update(&mut self, mut object: Value) -> (u16, Value) {
        let metadata = &object["metadata"];
        let has = |field: &str| metadata[field] == self.lease["metadata"][field];
        if !has("resourceVersion") || !has("uid") {
            let name = metadata["name"].as_str().unwrap_or_default();
            return status(
                409,
                "Conflict",
                "leases",
                name,
                "the object has been modified",
            );
        }
        check(&object);
        self.revision += 7;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.lease = object;
        (200, self.lease.clone())
    }
}

/// What the API demands of a Lease.
fn check(object: &Value) {
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("Lease"), &json!("coordination.k8s.io/v1"))
    );
    let spec = &object["spec"];
    if let Some(seconds) = spec.get("leaseDurationSeconds") {
        assert!((1..=i64::from(i32::MAX)).contains(&seconds.as_i64().unwrap()));
    }
    assert!((0..=i64::from(i32::MAX)).contains(&spec["leaseTransitions"].as_i64().unwrap()));
    for time in ["acquireTime", "renewTime"] {
        assert_eq!(
            spec[time].as_str().unwrap().len(),
            "2006-01-02T15:04:05.000000Z".len()
        );
    }
}

fn status(code: u16, reason: &str, kind: &str, name: &str, why: &str) -> (u16, Value) {
    let message = match kind {
        "" => why.to_owned(),
        "leases" => format!("leases.coordination.k8s.io \"{name}\" {why}"),
        _ => format!("{kind} \"{name}\" {why}"),
    };
    let details = json!({ "name": name, "kind": kind });
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code,
    });
    (code, status)
}
