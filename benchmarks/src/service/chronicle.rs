//! Chronicle Queue beside our own journal: the same orders on the same schedule, publisher and consumer as two Java
//! processes.
//!
//! Its libraries come from Maven Central, and the two ends are compiled, when they are first asked for; both are kept
//! in the folder for caches. Needs `mvn` and a JDK of version 17.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use millstream_journal::clock::monotonic_ns;
use millstream_wire::Cause;

use super::both::{Consumed, both};
use super::plan::{Plan, Times};
use crate::program::Program;

const SOURCES: [(&str, &str); 4] = [
    ("pom.xml", include_str!("../../java/chronicle/pom.xml")),
    (
        "Order.java",
        include_str!("../../java/chronicle/Order.java"),
    ),
    (
        "TunedOrder.java",
        include_str!("../../java/chronicle/TunedOrder.java"),
    ),
    (
        "OrdersOnChronicle.java",
        include_str!("../../java/chronicle/OrdersOnChronicle.java"),
    ),
];

/// No concurrent garbage collector on the two cores of the two ends, no reports over the network, no debugging checks.
const TUNING: [&str; 8] = [
    "-Xms256m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-Dchronicle.analytics.disable=true",
    "-Dchronicle.announcer.disable=true",
    "-Djvm.resource.tracing=false",
    "-Ddisable.single.threaded.check=true",
    "-Dslf4j.internal.verbosity=ERROR",
];

/// The internals that Chronicle uses and that Java 17 opens on request only.
const OPEN: [&str; 10] = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED",
    "--add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
];

/// How long two Java processes have to start.
const START_NS: u64 = 4_000_000_000;

/// How an order is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// By Chronicle's marshaller, with the names of method and fields: what its users get.
    Named,
    /// By hand, without names.
    Tuned,
}

impl Style {
    pub const ALL: [Style; 2] = [Style::Named, Style::Tuned];

    pub fn name(self) -> &'static str {
        match self {
            Style::Named => "Chronicle, self-describing",
            Style::Tuned => "Chronicle, hand-tuned bytes",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Style::Named => "named",
            Style::Tuned => "tuned",
        }
    }
}

/// The two ends in Java, compiled.
pub(super) struct Chronicle {
    program: Program,
}

impl Chronicle {
    /// Fetches and compiles what is needed, if that was not done before.
    ///
    /// # Errors
    /// There is no Maven or Java; what they say.
    pub fn prepare() -> Result<Self, String> {
        let folder = folder()?;
        if !folder.is_dir() {
            eprintln!("fetching Chronicle Queue into {}", folder.display());
            let unfinished = folder.with_extension(std::process::id().to_string());
            let built = build(&unfinished).and_then(|()| {
                fs::rename(&unfinished, &folder)
                    .map_err(|error| format!("{}: {error}", folder.display()))
            });
            if let Err(error) = built {
                // What is left of it would only be in the way; the error says more than this one could.
                let _ = fs::remove_dir_all(&unfinished);
                return Err(error);
            }
        }
        let mut words: Vec<OsString> = vec!["java".into()];
        words.extend(TUNING.iter().chain(&OPEN).map(OsString::from));
        let mut classes = folder.join("classes").into_os_string();
        classes.push(":");
        classes.push(folder.join("lib"));
        classes.push("/*");
        words.extend(["-cp".into(), classes, "millstream.OrdersOnChronicle".into()]);
        Ok(Chronicle {
            program: Program::of(words),
        })
    }

    pub fn publish_and_consume(
        &self,
        plan: &Plan,
        style: Style,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<Consumed, Cause> {
        let times = Times::after(monotonic_ns() + START_NS, plan);
        let folder = folder.display().to_string();
        let publisher = [
            "publish".to_owned(),
            folder.clone(),
            times.from.to_string(),
            times.until.to_string(),
            plan.rate.to_string(),
            style.word().to_owned(),
        ];
        let consumer = [
            "consume".to_owned(),
            folder,
            times.measured_from.to_string(),
            style.word().to_owned(),
        ];
        let publish = || {
            Ok(serde_json::from_value(
                self.program.run_json(&publisher, stop)?,
            )?)
        };
        both(&self.program, &consumer, publish, stop)
    }
}

/// Where the two ends are kept: another place for each version of them.
fn folder() -> Result<PathBuf, String> {
    let sources = SOURCES.iter().map(|(_, text)| text.as_bytes());
    let version = sources.fold(0, crc32c::crc32c_append);
    let caches = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => match std::env::var_os("HOME") {
            Some(home) => PathBuf::from(home).join(".cache"),
            None => return Err("neither XDG_CACHE_HOME nor HOME says where caches are".to_owned()),
        },
    };
    Ok(caches.join(format!("millstream/chronicle-{version:08x}")))
}

fn build(folder: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).map_err(failed)?;
    }
    let fetch = [
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DoutputDirectory=lib",
    ];
    run(folder, "mvn", &fetch)?;
    let mut compile = vec!["-d", "classes", "-cp", "lib/*"];
    let java = SOURCES.iter().map(|(name, _)| *name);
    compile.extend(java.filter(|name| name.ends_with(".java")));
    run(folder, "javac", &compile)
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            format!("{program} is not installed: Chronicle Queue needs Maven and a JDK")
        }
        _ => format!("{program}: {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    // Maven complains on standard output.
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().find(|line| !line.trim().is_empty());
    Err(format!("{program} failed: {}", line.unwrap_or_default()))
}
