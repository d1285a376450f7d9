//! `millstream journal serve`: let followers on other machines keep copies.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

use super::{leader, line};
use crate::address;
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::stop::Stop;
use crate::{log, moment, page};
use millstream_observe::sections::journals::Journals;
use millstream_replication::{
    FollowerTls, LeaderTls, ReplicationError, Secret, ServeOptions, serve,
};

/// The options of `millstream journal serve`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each follower has a cursor follower.NAME in the journal, with the records that it has acknowledged: `journal info` shows it,
`prune --keep-for-cursors` keeps the records after it, `append --wait-follower` waits for it if `journal followers` says
that it counts.
A journal that does not exist yet is served when it does. What a service keeps beside its output DIR (DIR.schedule,
DIR.snapshots) is served with it.
An address that other machines reach takes --secret-file, or --tls-cert, --tls-key and --tls-client-ca.

Example:
  millstream journal serve --listen 0.0.0.0:7600 --secret-file secret orders fills
  millstream journal follow leader.example:7600/orders orders-copy --secret-file secret     # on another machine")]
pub(super) struct Args {
    /// The journals' directories. Followers ask for them by the last part of the path, or by NAME in NAME=DIR.
    #[arg(required = true, value_name = "[NAME=]DIR", value_parser = parse_journal)]
    journals: Vec<(String, PathBuf)>,
    /// Where to listen; port 0 takes a free one, which is printed to stderr.
    #[arg(long, value_name = "HOST:PORT", value_parser = address::parse, default_value = "127.0.0.1:7600")]
    listen: SocketAddr,
    /// A file with a secret, which leader and followers prove to each other over TLS: 16 bytes or more, as of
    /// `head -c 32 /dev/urandom | base64`. Nothing else is needed to encrypt and authenticate the connection.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The certificate of this leader, in PEM, for followers with --tls-ca.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Accept only followers with a certificate that one of those in this PEM file vouches for (mutual TLS).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Send something at least this often. A side that is silent for ten times as long is taken for dead.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_heartbeat)]
    heartbeat: Duration,
    /// An old leader, which is notified after `journal promote` that these journals are in newer terms, until it knows.
    /// May be repeated.
    #[arg(long, value_name = "HOST:PORT", value_parser = leader::parse_address)]
    tell: Vec<(String, u16)>,
    /// Notify only old leaders whose certificate one of those in this PEM file vouches for.
    #[arg(long, value_name = "FILE", requires = "tell")]
    tls_ca: Option<PathBuf>,
    /// The name in the old leader's certificate [default: the host of its address].
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
    /// How many followers may be connected at once.
    #[arg(long, value_name = "N", default_value_t = 64)]
    followers_max: usize,
    #[command(flatten)]
    page: page::PageOptions,
    #[command(flatten)]
    log: log::Logging,
}

/// Serve until a signal comes.
pub(super) fn run(args: Args, stop: &Stop) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let observer = args.page.observer()?;
    if let Some(observer) = &observer {
        // Records are shown to readers with a token where followers authenticate.
        let is_public = args.secret_file.is_none() && args.tls_client_ca.is_none();
        let shows_records = is_public || args.page.has_token();
        let journals = Journals::watch(args.journals.clone(), shows_records, Some(line::decode()));
        observer.show(journals.map_err(Failure::failed)?);
    }
    let own = args.tls_cert.zip(args.tls_key);
    let client_authorities = args.tls_client_ca;
    let secret = args.secret_file.as_deref().map(Secret::read);
    let options = ServeOptions {
        journals: args.journals,
        secret: secret.transpose().map_err(ReplicationError::from)?,
        tls: own.clone().map(|(certificate, key)| LeaderTls {
            certificate,
            key,
            client_authorities,
        }),
        heartbeat: args.heartbeat,
        followers_max: args.followers_max,
        notify: args.tell,
        notify_tls: args.tls_ca.map(|authorities| FollowerTls {
            authorities,
            name: args.tls_name,
            certificate: own,
        }),
        ..ServeOptions::new(args.listen, [])
    };
    let ready = |address: SocketAddr| log::listening(&address);
    Ok(serve(&options, &stop.flag(), ready)?)
}

fn parse_journal(text: &str) -> Result<(String, PathBuf), String> {
    if let Some((name, dir)) = text.split_once('=')
        && !name.is_empty()
        && !name.contains('/')
    {
        return Ok((name.to_owned(), dir.into()));
    }
    let dir = PathBuf::from(text);
    let name = dir.canonicalize().unwrap_or_else(|_| dir.clone());
    match name.file_name() {
        Some(name) => Ok((name.to_string_lossy().into_owned(), dir)),
        None => Err("a directory with a name, or NAME=DIR".to_owned()),
    }
}

fn parse_heartbeat(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(600);
    let time = moment::parse_duration(text)?;
    if range.contains(&time) {
        Ok(time)
    } else {
        Err("a time from 10ms to 10m".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_have_the_names_of_their_directories_or_others() {
        let parse = |text| parse_journal(text).unwrap();
        assert_eq!(parse("/a/orders").0, "orders");
        assert_eq!(parse("/a/orders/").0, "orders");
        assert_eq!(
            parse("buy=/a/orders"),
            ("buy".to_owned(), "/a/orders".into())
        );
        assert_eq!(parse("/a=b/orders").0, "orders");
        assert!(parse_journal("/").is_err());
    }

    #[test]
    fn heartbeats_have_limits() {
        assert_eq!(parse_heartbeat("250ms"), Ok(Duration::from_millis(250)));
        assert!(parse_heartbeat("1ms").is_err() && parse_heartbeat("1h").is_err());
    }
}
