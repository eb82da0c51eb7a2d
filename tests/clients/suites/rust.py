"""zookeeper-client (Rust): the integration tests of the published crate, each test in a process of its own.

They start servers as docker containers; rust/testcontainers stands in for that crate and starts processes of the
server under test. The crate's optional features (TLS, SASL) are off.
"""

import concurrent.futures
import json
import shutil
import subprocess
import time

from .common import HERE, Result, SetupError, build, need, one_line, run_limited, up_to_date

NAME = "rust"
VERSION = "0.11.2"
CLIENT = f"zookeeper-client {VERSION}"
PER_TEST_SECONDS = 150
# These two start three servers on fixed ports, so they never run beside another.
ALONE = ("test_readonly_plaintext", "test_update_ensemble")


def folder(context):
    return context.work / f"rust-zookeeper-client-{VERSION}"


def source(context):
    """The folder of the crate as cargo unpacked it."""
    fetch = context.work / "rust-fetch"
    (fetch / "src").mkdir(parents=True, exist_ok=True)
    (fetch / "src" / "lib.rs").touch()
    (fetch / "Cargo.toml").write_text(
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'
        f'[dependencies]\nzookeeper-client = "={VERSION}"\n')
    log = context.log("rust.build.log")
    build(["cargo", "fetch", "-q"], log, cwd=fetch)
    metadata = subprocess.run(["cargo", "metadata", "--format-version", "1"], cwd=fetch, capture_output=True, text=True)
    for package in json.loads(metadata.stdout)["packages"]:
        if package["name"] == "zookeeper-client":
            return package["manifest_path"].rsplit("/", 1)[0]
    raise SetupError("cargo metadata does not name zookeeper-client")


def prepare(context):
    need("cargo", "the Rust toolchain that builds Lockkeeper")
    target = folder(context)
    if up_to_date(target / "tests-binary", __file__, HERE / "rust" / "testcontainers" / "src" / "lib.rs"):
        return
    crate = source(context)
    target.mkdir(exist_ok=True)
    for part in ("src", "tests"):
        shutil.rmtree(target / part, ignore_errors=True)
        shutil.copytree(f"{crate}/{part}", target / part)
    # Copied, so that it is part of no workspace of this repository.
    shutil.rmtree(target / "testcontainers", ignore_errors=True)
    shutil.copytree(HERE / "rust" / "testcontainers", target / "testcontainers")
    lines = []
    for line in open(f"{crate}/Cargo.toml.orig"):
        if line.startswith("testcontainers ="):
            line = 'testcontainers = { path = "testcontainers" }\n'
        if not line.startswith("lto ="):
            lines.append(line)
    (target / "Cargo.toml").write_text("".join(lines) + "\n[workspace]\n")
    env = context.environment(CARGO_TARGET_DIR=target / "target", CARGO_PROFILE_TEST_DEBUG=0, CARGO_PROFILE_DEV_DEBUG=0)
    messages = context.log("rust.build.json")
    messages.unlink(missing_ok=True)
    build(["cargo", "test", "--no-run", "--test", "zookeeper", "--message-format=json"], messages, cwd=target, env=env)
    for line in messages.read_text(errors="replace").splitlines():
        if line.startswith("{") and (message := json.loads(line)).get("executable"):
            shutil.copyfile(message["executable"], target / "tests-binary")
            (target / "tests-binary").chmod(0o755)
            return
    raise SetupError(f"cargo built no test binary, see {messages}")


def list_tests(context):
    if context.servers > 1:
        return list(ALONE)
    listing = subprocess.run([folder(context) / "tests-binary", "--list"], capture_output=True, text=True)
    return [line[:-len(": test")] for line in listing.stdout.splitlines() if line.endswith(": test")]


def run_tests(context, names):
    together = [name for name in names if name not in ALONE]
    with concurrent.futures.ThreadPoolExecutor(context.jobs) as pool:
        results = list(pool.map(lambda name: run_one(context, name), together))
    return results + [run_one(context, name) for name in names if name in ALONE]


def run_one(context, name):
    env = context.environment(SUT_LOGLEVEL="info", ZK_TEST_TLS="false")
    command = [folder(context) / "tests-binary", "--exact", name, "--test-threads=1", "--nocapture"]
    start = time.monotonic()
    code, output = run_limited(command, PER_TEST_SECONDS, env=env)
    ms = int((time.monotonic() - start) * 1000)
    with open(context.log("rust.log"), "a") as log:
        log.write(f"=== {name}: exit {code}\n{output}")
    status = "TIMEOUT" if code is None else "PASS" if code == 0 else "FAIL"
    if "SKIP: this test needs" in output:
        status = "SKIP"
    lines = output.splitlines()
    said = [" ".join(lines[i + 1:i + 3]) for i, line in enumerate(lines) if "panicked at" in line]
    return Result(status, name, ms, "" if status == "PASS" else one_line(said[0] if said else f"exit {code}"))
