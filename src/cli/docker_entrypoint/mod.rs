//! `lockkeeper docker-entrypoint`: what a container of ZooKeeper's image does before its server runs.
//!
//! *Owns* the order: step down from root, write what is missing (zoo.cfg, `myid`, the users of SASL), and become the
//! command. *Invariants*: a file that is there is never changed, as with ZooKeeper's images; what the environment
//! asks for and is not offered ends the start by name; no secret is printed. Rooms: `official.rs` and `bitnami.rs`
//! say what the variables of those two images mean, `jvm.rs` what flags of the JVM mean here, `zk_server.rs` is
//! `zkServer.sh`. *Never* runs a server itself: it becomes `lockkeeper server`, so that what runs is shown by its
//! command line.
//!
//! Reproduces `docker-entrypoint.sh` of github.com/31z4/zookeeper-docker and `libzookeeper.sh` of Bitnami's image.

mod bitnami;
mod files;
mod jvm;
mod official;
mod variables;
mod zk_server;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};

use super::exit::EXIT_REFUSED;
use super::output::failed;
use variables::Variables;
pub(crate) use zk_server::ZkServerFlags;
pub(super) use zk_server::run as run_zk_server;

/// Names under which the binary is linked in images, and the command that each stands for.
const LINKS: [(&str, &str); 3] = [
    ("zkServer.sh", "zk-server"),
    ("zkCli.sh", "cli"),
    ("docker-entrypoint.sh", "docker-entrypoint"),
];

/// Flags of `lockkeeper docker-entrypoint`.
#[derive(Debug, Args)]
pub(crate) struct DockerEntrypointFlags {
    /// Which image's variables and directories are meant
    #[arg(long, value_name = "IMAGE", default_value = "auto")]
    style: Style,
    /// What to run then
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        default_values = ["zkServer.sh", "start-foreground"]
    )]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Style {
    /// bitnami if a variable is set that only its image has, else official
    Auto,
    /// The image `zookeeper`
    Official,
    /// The image `bitnami/zookeeper`
    Bitnami,
}

impl Style {
    /// How the flag has it, and the user of that image with its group.
    fn name_and_user(self) -> (&'static str, u32) {
        match self {
            Self::Bitnami => ("bitnami", 1001),
            Self::Official | Self::Auto => ("official", 1000),
        }
    }
}

/// The command line with the name by which the binary was called made the command that it stands for.
pub(super) fn by_name(line: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.collect();
    let name = line.first().and_then(|name| Path::new(name).file_name());
    let link = LINKS.iter().find(|(link, _)| name.is_some_and(|name| name == *link));
    if let Some((_, command)) = link {
        line.insert(1, command.into());
    }
    line
}

/// Runs the command; returns only if it fails.
pub(super) fn run(flags: &DockerEntrypointFlags) -> ExitCode {
    let variables = Variables::of_process();
    let style = match flags.style {
        Style::Auto if bitnami::is_meant(&variables) => Style::Bitnami,
        Style::Auto => Style::Official,
        said => said,
    };
    match start(flags, style, &variables) {
        Ok(never) => match never {},
        Err(reason) => failed(EXIT_REFUSED, &reason),
    }
}

fn start(
    flags: &DockerEntrypointFlags,
    style: Style,
    variables: &Variables,
) -> Result<std::convert::Infallible, String> {
    let is_server = flags.command.first().is_some_and(|name| name == "zkServer.sh");
    let plan = match style {
        Style::Bitnami => bitnami::plan(variables)?,
        Style::Official | Style::Auto => official::plan(variables)?,
    };
    if is_server && rustix::process::getuid().is_root() {
        let (name, user) = style.name_and_user();
        files::give_to(&plan.directories, user)?;
        let mut again = own_command()?;
        again.args(["docker-entrypoint", "--style", name]).args(&flags.command);
        // Takes the groups of root away as well.
        return Err(format!("cannot step down from root: {}", again.uid(user).gid(user).exec()));
    }
    files::write(&plan.directories, &plan.files)?;
    let (name, arguments) = flags.command.split_first().ok_or("no command is given")?;
    let mut command = match LINKS.iter().find(|(link, _)| name == *link) {
        // It need not be on PATH: the image may hold nothing but this binary.
        Some((_, ours)) => {
            let mut command = own_command()?;
            command.arg(ours);
            command
        }
        None if name == "lockkeeper" => own_command()?,
        None => Command::new(name),
    };
    command.args(arguments).env("ZOOCFGDIR", &plan.config_dir);
    Err(format!("{} cannot be run: {}", name.display(), command.exec()))
}

/// This very program.
fn own_command() -> Result<Command, String> {
    let program = std::env::current_exe();
    let program = program.map_err(|error| format!("this program is not found: {error}"))?;
    let mut command = Command::new(program);
    command.arg0("lockkeeper");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_the_binary_is_a_command_of_its_own() {
        for (line, expected) in [
            ("/bin/zkServer.sh status", "/bin/zkServer.sh zk-server status"),
            ("zkCli.sh -server a:1 ls /", "zkCli.sh cli -server a:1 ls /"),
            ("/docker-entrypoint.sh x", "/docker-entrypoint.sh docker-entrypoint x"),
            ("/usr/bin/lockkeeper server", "/usr/bin/lockkeeper server"),
        ] {
            let words: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(by_name(line.split(' ').map(OsString::from)), words, "{line}");
        }
    }
}
