//! Where an arbiter is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use millstream_link::Address;

use super::etcd::EtcdArbiter;
use super::file::FileArbiter;
use super::http::ArbiterTls;
use super::kubernetes::{KubernetesArbiter, Pod};
use super::{Arbiter, ArbiterError};

/// What there is, for errors.
const FORMS: &str = "file:DIR, etcd://HOST:PORT[,HOST:PORT...]/KEY, the same with etcds:// for TLS, or \
                     kubernetes:NAMESPACE/NAME";
/// The most characters of a name in Kubernetes, and of one that has no dots.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Where an arbiter is, as text: `file:DIR`, `etcd://HOST:PORT[,HOST:PORT...]/KEY`, `etcds://...` or
/// `kubernetes:NAMESPACE/NAME`.
///
/// ```
/// use millstream_replication::arbiter::ArbiterAddress;
///
/// let address: ArbiterAddress = "etcds://etcd-1:2379,etcd-2:2379/millstream/orders".parse()?;
/// let ArbiterAddress::Etcd { endpoints, key, is_tls } = &address else { panic!() };
/// assert_eq!(endpoints, &["etcd-1:2379", "etcd-2:2379"]);
/// assert_eq!((key.as_str(), *is_tls), ("millstream/orders", true));
/// assert!("etcd:orders".parse::<ArbiterAddress>().unwrap_err().contains("etcd://HOST:PORT"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArbiterAddress {
    /// A directory on storage that all machines share.
    File(PathBuf),
    /// A key in etcd, version 3.4 or newer.
    Etcd {
        /// `HOST:PORT` of the members of one cluster.
        endpoints: Vec<String>,
        /// The key: all after the slash.
        key: String,
        /// Whether they are reached over TLS.
        is_tls: bool,
    },
    /// A Lease of Kubernetes, of the API group `coordination.k8s.io`, as a pod reaches it. Its service account needs
    /// the verbs `get`, `create` and `update` on `leases`.
    ///
    /// The token and the certificates of the service account are in `/var/run/secrets/kubernetes.io/serviceaccount`,
    /// or in the directory that the environment variable `MILLSTREAM_SERVICE_ACCOUNT` names. The API server is that
    /// of `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT_HTTPS`.
    Kubernetes {
        /// The namespace, which must exist.
        namespace: String,
        /// The name of the Lease, which is made when there is none.
        name: String,
    },
}

impl ArbiterAddress {
    /// The arbiter there, each call of which ends within about `timeout` where it is reached over a network; a
    /// directory has no limit. It may not be reached yet.
    ///
    /// # Errors
    /// A file that cannot be read; files of `tls` for anything but `etcds://`; a process that is not in a pod of
    /// Kubernetes.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn connect(
        &self,
        tls: &ArbiterTls,
        timeout: Duration,
    ) -> Result<Box<dyn Arbiter>, ArbiterError> {
        let failed = |why: String| ArbiterError::new(self.to_string(), why);
        if *tls != ArbiterTls::default()
            && !matches!(self, ArbiterAddress::Etcd { is_tls: true, .. })
        {
            return Err(failed("files of TLS are for etcds:// only".to_owned()));
        }
        Ok(match self {
            ArbiterAddress::File(dir) => Box::new(FileArbiter::new(dir)),
            ArbiterAddress::Etcd {
                endpoints,
                key,
                is_tls,
            } => {
                let scheme = if *is_tls { "https" } else { "http" };
                let urls = endpoints
                    .iter()
                    .map(|endpoint| format!("{scheme}://{endpoint}"));
                let address = self.to_string();
                let urls = urls.collect();
                Box::new(EtcdArbiter::new(address, urls, key, tls, timeout)?)
            }
            ArbiterAddress::Kubernetes { namespace, name } => {
                let pod = Pod::from_environment(|name| std::env::var(name).ok()).map_err(failed)?;
                Box::new(KubernetesArbiter::new(&pod, namespace, name, timeout)?)
            }
        })
    }
}

impl fmt::Display for ArbiterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArbiterAddress::File(dir) => write!(f, "file:{}", dir.display()),
            ArbiterAddress::Etcd {
                endpoints,
                key,
                is_tls,
            } => {
                let scheme = if *is_tls { "etcds" } else { "etcd" };
                write!(f, "{scheme}://{}/{key}", endpoints.join(","))
            }
            ArbiterAddress::Kubernetes { namespace, name } => {
                write!(f, "kubernetes:{namespace}/{name}")
            }
        }
    }
}

impl FromStr for ArbiterAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.split_once(':') {
            Some(("file", dir)) if !dir.is_empty() => Some(ArbiterAddress::File(dir.into())),
            Some(("etcd", rest)) => etcd(rest, false),
            Some(("etcds", rest)) => etcd(rest, true),
            Some(("kubernetes", rest)) => kubernetes(rest),
            _ => None,
        };
        parsed.ok_or_else(|| format!("{text:?} is no arbiter: give {FORMS}"))
    }
}

fn etcd(rest: &str, is_tls: bool) -> Option<ArbiterAddress> {
    let (endpoints, key) = rest.strip_prefix("//")?.split_once('/')?;
    let endpoints: Option<Vec<String>> = endpoints.split(',').map(endpoint).collect();
    (!key.is_empty()).then_some(ArbiterAddress::Etcd {
        endpoints: endpoints?,
        key: key.to_owned(),
        is_tls,
    })
}

/// A `HOST:PORT` that can be part of a URL.
fn endpoint(text: &str) -> Option<String> {
    let address: Address = text.parse().ok()?;
    let is_host = |name: char| name.is_ascii_alphanumeric() || "-._:".contains(name);
    address
        .host()
        .chars()
        .all(is_host)
        .then(|| address.to_string())
}

fn kubernetes(rest: &str) -> Option<ArbiterAddress> {
    let (namespace, name) = rest.split_once('/')?;
    let is_label = |text: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        (1..=LABEL_MAX).contains(&bytes.len())
            && bytes.iter().all(|byte| is_inner(*byte) || *byte == b'-')
            && !text.starts_with('-')
            && !text.ends_with('-')
    };
    let is_right = is_label(namespace) && name.len() <= NAME_MAX && name.split('.').all(is_label);
    is_right.then(|| ArbiterAddress::Kubernetes {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_given() {
        for text in [
            "file:/mnt/shared/lease",
            "etcd://127.0.0.1:2379/orders",
            "etcd://a:2379,b.example.org:2379,[::1]:2379//a key/of parts",
            "etcds://etcd-1:2379/millstream/orders",
            "kubernetes:default/orders",
            "kubernetes:shop-1/orders.of.shop-1",
        ] {
            let address: ArbiterAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_arbiter_is_answered_with_the_forms() {
        let long = format!("kubernetes:default/{}", "a".repeat(64));
        for text in [
            "",
            "orders",
            "file:",
            "etcd:127.0.0.1:2379/orders",
            "etcd://127.0.0.1:2379",
            "etcd://127.0.0.1:2379/",
            "etcd:///orders",
            "etcd://127.0.0.1/orders",
            "etcd://a:2379,/orders",
            "etcd://a:65536/orders",
            "etcd://user@a:2379/orders",
            "etcd://user:word@a:2379/orders",
            "etcd://a b:2379/orders",
            "http://127.0.0.1:2379/orders",
            "kubernetes:orders",
            "kubernetes:/orders",
            "kubernetes:default/",
            "kubernetes:default/Orders",
            "kubernetes:default/-orders",
            "kubernetes:default/orders..1",
            "kubernetes:de.fault/orders",
            "kubernetes:default/orders/1",
            &long,
        ] {
            let error = text.parse::<ArbiterAddress>().unwrap_err();
            assert_eq!(error, format!("{text:?} is no arbiter: give {FORMS}"));
        }
    }

    #[test]
    fn files_of_tls_are_not_ignored() {
        let tls = ArbiterTls {
            ca: Some("ca.pem".into()),
            certificate: None,
        };
        let timeout = Duration::from_secs(1);
        for text in [
            "file:lease",
            "etcd://127.0.0.1:2379/orders",
            "kubernetes:default/orders",
        ] {
            let address: ArbiterAddress = text.parse().unwrap();
            let error = address.connect(&tls, timeout).err().unwrap().to_string();
            assert_eq!(
                error,
                format!("the arbiter {text}: files of TLS are for etcds:// only")
            );
        }
        let address: ArbiterAddress = "etcds://127.0.0.1:2379/orders".parse().unwrap();
        let error = address.connect(&tls, timeout).err().unwrap().to_string();
        assert!(error.contains("orders: ca.pem: No such file"), "{error}");
    }
}
