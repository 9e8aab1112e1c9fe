"""`matrixrun run` on servers that run already: two real llama.cpp servers, started by hand."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from matrixrun import models
from matrixrun.engines import Environment, Server, get, prepare
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Command, Limits

pytestmark = pytest.mark.engine

LLAMACPP = get("llamacpp")
KEY = "the-key-of-staging-4711"
NGRAM = Speculation(
    method="ngram-simple", num_speculative_tokens=4, options={"spec_ngram_simple_size_n": 2}
)
MATRIX = """\
name: staging
engines:
  staging: {kind: llamacpp, attach: {off: "OFF", on: "ON", key_env: STAGING_KEY}}
models:
  dense: {targets: {q8_0: {path: org/dense-q8_0}}}
grid:
  engine: staging
  model: dense
  quantization: q8_0
  tensor_parallel_size: 2
  batch_size: [1, 2]
  speculation: {method: ngram-simple, num_speculative_tokens: 4}
workload: {prompts: 30, max_tokens: 48, prompt_tokens: [16, 96], ignore_eos: true}
detect: {request_fault_rate: 0.1}
timeouts: {ready: 20, request: 60}
"""


@pytest.fixture(scope="module")
def environment(cache: Path) -> Environment:
    return prepare(LLAMACPP.default_recipe, cache=cache, timeout=900, on_line=print)


@contextmanager
def served(
    environment: Environment,
    cache: Path,
    folder: Path,
    speculation: Speculation | None,
    *,
    without: tuple[str, ...] = (),
) -> Iterator[Server]:
    """A server as somebody else may have started it, with a key of theirs; `without` some of the
    flags that ours have."""
    config = ArmConfig(
        engine="x", kind="llamacpp", arm=Arm.OFF if speculation is None else Arm.ON,
        recipe=LLAMACPP.default_recipe, model="dense",
        target=Checkpoint(path="builtin:gguf-dense/q8_0"), speculation=speculation,
        limits=Limits(max_model_len=240, max_num_seqs=2),
    )  # fmt: skip
    command = LLAMACPP.command(config)
    argv = " ".join(command.argv)
    for flag in without:
        assert flag in argv
        argv = argv.replace(flag, "")
    with Server(
        Command(argv=tuple(argv.split()), env=command.env),
        environment,
        engine=LLAMACPP,
        target=str(models.build("builtin:gguf-dense/q8_0", environment.python, cache, print)),
        api_key=KEY,
        log_path=folder / f"{config.arm}.log",
        ready_timeout=60,
    ) as server:
        yield server


def run(folder: Path, off: str, on: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "staging.yaml").write_text(MATRIX.replace("OFF", off).replace("ON", on))
    return subprocess.run(
        [sys.executable, "-m", "matrixrun", "run", "staging.yaml", "--results", "out"],
        cwd=folder,
        env={**os.environ, "STAGING_KEY": KEY, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def cells(folder: Path) -> list[dict[str, object]]:
    return json.loads((folder / "out" / "summary.json").read_text())["cells"]


def texts(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".log":
            yield path, path.read_bytes()


def test_a_pair_of_servers_is_judged_left_running_and_its_key_written_nowhere(
    environment: Environment, cache: Path, tmp_path: Path
) -> None:
    with (
        served(environment, cache, tmp_path, None) as off,
        served(environment, cache, tmp_path, NGRAM) as on,
    ):
        done = run(tmp_path, off.base_url, on.base_url)
        assert off.alive
        assert on.alive
    assert done.returncode == 0, done.stdout + done.stderr
    found = cells(tmp_path)
    assert [cell["verdict"] for cell in found] == ["PASS", "PASS"]
    for cell in found:
        assert "against one off launch only" in str(cell["reason"])
        assert cell["metrics"]["same/exact_match"] == 1.0  # type: ignore[index]
        assert cell["metrics"]["acceptance/speculated_share"] > 0.05  # type: ignore[index]
    outcomes = list((tmp_path / "out").rglob("outcome.json"))
    for path in outcomes:
        outcome = json.loads(path.read_text())
        assert outcome["hardware"] == outcome["checkpoints"] == outcome["env"] == {}
        assert outcome["argv"][:2] == ["attach", outcome["facts"]["attached"]]
        assert "its hardware" in outcome["facts"]["unknown"]
    assert len(outcomes) == 2
    assert KEY not in done.stdout + done.stderr
    assert not [path for path, data in texts(tmp_path) if KEY.encode() in data]


def test_over_tls_and_with_less_than_ours_give(
    environment: Environment, cache: Path, tmp_path: Path
) -> None:
    """Neither metrics nor slots that can be erased; the on arm behind TLS of its own authority."""
    bare = ("--metrics", "--slot-save-path .")
    with ExitStack() as stack:
        off = stack.enter_context(served(environment, cache, tmp_path, None, without=bare))
        on = stack.enter_context(served(environment, cache, tmp_path, NGRAM, without=bare))
        authority, address = stack.enter_context(tls_in_front_of(on, tmp_path))
        refused = run(tmp_path, off.base_url, address)
        assert {cell["verdict"] for cell in cells(tmp_path)} == {"ERROR"}, refused.stdout
        assert all("SSL_CERT_FILE" in str(cell["reason"]) for cell in cells(tmp_path))
        (tmp_path / "out").rename(tmp_path / "refused")
        done = run(tmp_path, off.base_url, address, SSL_CERT_FILE=str(authority))
    assert done.returncode == 0, done.stdout + done.stderr
    found = cells(tmp_path)
    assert [cell["verdict"] for cell in found] == ["PASS", "PASS"], found
    notice = next(f for f in found[0]["findings"] if f["kind"] == "attached")  # type: ignore[attr-defined]
    assert "its own counters" in notice["text"]
    assert "cannot be erased" in notice["text"]


def test_a_server_that_goes_away_is_an_error_that_names_it(
    environment: Environment, cache: Path, tmp_path: Path
) -> None:
    with served(environment, cache, tmp_path, None) as off:
        text = MATRIX.replace("ready: 20", "ready: 2")
        assert text != MATRIX
        done = run(tmp_path, off.base_url, "http://127.0.0.1:9")
    assert done.returncode == 1, done.stdout + done.stderr
    for cell in cells(tmp_path):
        assert cell["verdict"] == "ERROR"
        assert "http://127.0.0.1:9/health gave no healthy answer within" in str(cell["reason"])


@contextmanager
def tls_in_front_of(server: Server, folder: Path) -> Iterator[tuple[Path, str]]:
    """A double of a gateway: ends TLS with a certificate of its own authority and passes bytes on.
    Yields the authority's file and the address."""
    certificate, key = self_signed(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection(server.host, server.port)
        await asyncio.gather(pipe(reader, behind[1]), pipe(behind[0], writer))

    gateway = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield certificate, f"https://localhost:{gateway.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    alternatives = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    written, secret = folder / "authority.pem", folder / "key.pem"
    written.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return written, secret
