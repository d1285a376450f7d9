//! An API server of Kubernetes that is imitated, over TLS: Leases with the rules for versions, rights and namespaces.

mod server;

use serde_json::{Value, json};

use self::server::{ApiServer, NAMESPACE, OTHER_TOKEN, TOKEN};
use super::super::kubernetes::KubernetesArbiter;
use super::*;

const NAME: &str = "orders";
const IN_POD: &str = "MILLSTREAM_TEST_IN_POD";

fn connect_to(server: &ApiServer, namespace: &str) -> KubernetesArbiter {
    KubernetesArbiter::new(&server.pod(), namespace, NAME, PLENTY).unwrap()
}

fn connect(server: &ApiServer) -> KubernetesArbiter {
    connect_to(server, NAMESPACE)
}

fn error_of<T: std::fmt::Debug>(outcome: Result<T, ArbiterError>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn one_of_several_replaces_a_version_in_kubernetes() {
    let server = ApiServer::start();
    let connect = |_| -> Box<dyn Arbiter> { Box::new(connect(&server)) };
    behaves(&(0..4).map(connect).collect::<Vec<_>>());
}

#[test]
fn a_process_in_a_pod_reaches_its_lease() {
    let address: ArbiterAddress = format!("kubernetes:{NAMESPACE}/{NAME}").parse().unwrap();
    if std::env::var_os(IN_POD).is_some() {
        let arbiter = address.connect(&ArbiterTls::default(), PLENTY).unwrap();
        assert!(arbiter.replace(None, &record(1, 0)).unwrap().is_some());
        return;
    }
    let server = ApiServer::start();
    let pod = server.pod();
    let (host, port) = pod.server.rsplit_once(':').unwrap();
    let run = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "arbiter::tests::kubernetes::a_process_in_a_pod_reaches_its_lease",
        ])
        .env(IN_POD, "yes")
        .env("KUBERNETES_SERVICE_HOST", host)
        .env("KUBERNETES_SERVICE_PORT_HTTPS", port)
        .env("MILLSTREAM_SERVICE_ACCOUNT", &pod.service_account)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    assert_eq!(
        server.lease().unwrap()["spec"]["holderIdentity"],
        record(1, 0).holder
    );
}

#[test]
fn a_lease_keeps_what_others_have_put_there() {
    let server = ApiServer::start();
    // One that was made by hand, so that the right to create is not needed.
    server.put_lease(json!({
        "metadata": {
            "labels": { "app": "shop" },
            "annotations": { "team": "orders" },
            "finalizers": ["example.com/keep"],
        },
        "spec": { "strategy": "OldestEmulationVersion" },
        "other": { "future": [1, 2] },
    }));
    server.forbid(&["create"]);
    let arbiter = connect(&server);
    assert!(arbiter.read().unwrap().is_none());
    let version = arbiter.replace(None, &record(1, 0)).unwrap().unwrap();
    arbiter
        .replace(Some(&version), &record(1, 1))
        .unwrap()
        .unwrap();
    let lease = server.lease().unwrap();
    assert_eq!(lease["metadata"]["labels"], json!({ "app": "shop" }));
    assert_eq!(lease["metadata"]["annotations"]["team"], "orders");
    assert_eq!(
        lease["metadata"]["annotations"]["millstream/record"],
        record(1, 1).to_json()
    );
    assert_eq!(lease["metadata"]["finalizers"], json!(["example.com/keep"]));
    assert_eq!(lease["other"], json!({ "future": [1, 2] }));
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(lease["spec"]["holderIdentity"], record(1, 1).holder);
}

#[test]
fn a_renewal_is_one_request() {
    let server = ApiServer::start();
    let arbiter = connect(&server);
    let mut version = arbiter.replace(None, &record(1, 0)).unwrap();
    let begin = server.requests();
    for beat in 1..5 {
        version = arbiter.replace(version.as_ref(), &record(1, beat)).unwrap();
        assert!(version.is_some());
    }
    assert_eq!(server.requests() - begin, 4);
    // Another one has no such object yet.
    let replaced = connect(&server)
        .replace(version.as_ref(), &record(2, 5))
        .unwrap();
    assert!(replaced.is_some());
    assert_eq!(server.requests() - begin, 6);
}

#[test]
fn the_rights_that_a_service_account_lacks_are_named() {
    let server = ApiServer::start();
    let arbiter = connect(&server);
    for verb in ["get", "create"] {
        server.forbid(&[verb]);
        let error = error_of(arbiter.replace(None, &record(1, 0)));
        let begin = format!(
            "the arbiter kubernetes:{NAMESPACE}/{NAME}: the service account may not {verb} the Lease {NAME} in the \
             namespace {NAMESPACE}: it needs the verbs get, create and update on leases of coordination.k8s.io: the \
             answer is 403 Forbidden: leases.coordination.k8s.io"
        );
        assert!(error.starts_with(&begin), "{error}");
    }
    server.forbid(&[]);
    let version = arbiter.replace(None, &record(1, 0)).unwrap();
    server.forbid(&["update"]);
    let error = error_of(arbiter.replace(version.as_ref(), &record(1, 1)));
    assert!(error.contains("may not update the Lease"), "{error}");
    server.forbid(&[]);

    let other = connect_to(&server, "nowhere");
    assert!(other.read().unwrap().is_none());
    let error = error_of(other.replace(None, &record(1, 0)));
    let says = "there is no namespace nowhere: the answer is 404 Not Found: namespaces \"nowhere\"";
    assert!(error.contains(says), "{error}");
}

#[test]
fn a_token_is_read_again_for_each_request() {
    let server = ApiServer::start();
    let arbiter = connect(&server);
    assert!(arbiter.read().unwrap().is_none());
    server.take_token(OTHER_TOKEN);
    let error = error_of(arbiter.read());
    assert!(
        error.contains("the API server refuses the token of "),
        "{error}"
    );
    assert!(
        error.ends_with("/token: the answer is 401 Unauthorized: Unauthorized"),
        "{error}"
    );
    assert!(!error.contains(TOKEN), "{error}");
    let token = server.pod().service_account.join("token");
    std::fs::write(&token, OTHER_TOKEN).unwrap();
    assert!(arbiter.read().unwrap().is_none());
    std::fs::write(&token, "a token\nof two lines").unwrap();
    let error = error_of(arbiter.read());
    assert!(error.ends_with("/token: this is no token"), "{error}");
    std::fs::remove_file(&token).unwrap();
    let error = error_of(arbiter.read());
    assert!(error.contains("/token: No such file"), "{error}");
}

#[test]
fn a_lease_of_another_program_is_left_alone() {
    let server = ApiServer::start();
    server.put_lease(json!({ "metadata": {}, "spec": { "holderIdentity": "scheduler" } }));
    let before = server.lease();
    let arbiter = connect(&server);
    let says = "the Lease has the holder scheduler, and no annotation millstream/record";
    for error in [
        error_of(arbiter.read()),
        error_of(arbiter.replace(None, &record(1, 0))),
    ] {
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(server.lease(), before);
}

#[test]
fn a_lease_that_was_deleted_or_made_again_is_another_version() {
    let server = ApiServer::start();
    let arbiter = connect(&server);
    let other = connect(&server);
    let version = arbiter.replace(None, &record(1, 0)).unwrap();
    server.put_lease(Value::Null);
    assert_eq!(
        arbiter.replace(version.as_ref(), &record(1, 1)).unwrap(),
        None
    );
    assert_eq!(
        arbiter.replace(version.as_ref(), &record(1, 1)).unwrap(),
        None
    );
    assert_eq!(arbiter.read().unwrap(), None);
    let again = other.replace(None, &record(2, 0)).unwrap();
    assert!(again.is_some() && again != version);
    assert_eq!(
        arbiter.replace(version.as_ref(), &record(1, 1)).unwrap(),
        None
    );
    assert_eq!(
        arbiter.read().unwrap(),
        Some((again.unwrap(), record(2, 0)))
    );
}

#[test]
fn a_server_that_is_not_that_of_the_cluster_is_refused() {
    let server = ApiServer::start();
    let pod = server.pod();
    let file = |name: &str| pod.service_account.join(name);
    std::fs::copy(file("other.pem"), file("ca.crt")).unwrap();
    let error = error_of(connect(&server).read());
    assert!(
        error.contains(&format!("https://{}/", pod.server)) && error.contains("UnknownIssuer"),
        "{error}"
    );
    std::fs::remove_file(file("ca.crt")).unwrap();
    let error = KubernetesArbiter::new(&pod, NAMESPACE, NAME, PLENTY)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("ca.crt: No such file"), "{error}");
    assert_eq!(server.requests(), 0);
}

#[test]
fn what_is_no_api_server_is_an_error() {
    let server = ApiServer::start();
    let arbiter = connect(&server);
    for (body, says) in [
        (
            "404 page not found",
            "the answer is 404 Not Found: 404 page not found",
        ),
        ("{}", "the answer is 404 Not Found: {}"),
    ] {
        server.answer_with(404, body);
        let error = error_of(arbiter.read());
        assert!(error.ends_with(says), "{error}");
    }
    for body in [
        "",
        "[]",
        "{}",
        "{\"kind\": \"Lease\"}",
        "{\"kind\": \"Lease\", \"metadata\": 1}",
    ] {
        server.answer_with(200, body);
        let error = error_of(arbiter.replace(None, &record(1, 0)));
        assert!(error.ends_with("the answer is no Lease"), "{body}: {error}");
    }
}

#[test]
fn an_api_server_that_hangs_is_left_in_time() {
    let server = ApiServer::start();
    // Connections to it are made, by the system, and nothing is answered.
    let hung = TcpListener::bind(free_address()).unwrap();
    let mut pod = server.pod();
    pod.server = hung.local_addr().unwrap().to_string();
    let short = Duration::from_millis(200);
    let arbiter = KubernetesArbiter::new(&pod, NAMESPACE, NAME, short).unwrap();
    for error in [
        error_of(arbiter.read()),
        error_of(arbiter.replace(None, &record(1, 0))),
    ] {
        assert!(error.contains("no answer within "), "{error}");
    }
}
