"""The files of deploy/: what listens does so on loopback, Prefect has a password and TLS, the record is served as files."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
NGINX = next(
    (found for name in (os.environ.get("WATCHKEEPER_NGINX", ""), "nginx") if name and (found := shutil.which(name))),
    None,
)


def test_only_nginx_listens_and_on_loopback_unless_it_is_told_otherwise():
    ports = {name: service.get("ports", []) for name, service in COMPOSE["services"].items()}
    assert ports == {"prefect": [], "watchkeeper": [], "nginx": ["${BIND:-127.0.0.1}:8443:8443"]}
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert COMPOSE["services"]["prefect"]["networks"] == ["inside"]


def test_nothing_starts_without_prefects_password_and_certificates():
    demanded = r"\$\{(\w+):\?[^}]+\}"
    services = COMPOSE["services"]
    password = services["prefect"]["environment"]["PREFECT_SERVER_API_AUTH_STRING"]
    assert re.fullmatch(demanded, password)[1] == "PREFECT_AUTH"
    assert services["watchkeeper"]["environment"]["PREFECT_API_AUTH_STRING"] == password
    tls = next(volume for volume in services["nginx"]["volumes"] if volume.endswith("/etc/nginx/tls:ro"))
    assert re.match(demanded, tls)[1] == "TLS"
    for service in ("prefect", "watchkeeper"):
        assert services[service]["environment"]["PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"] == "events,flow_runs"


def test_every_file_that_is_mounted_or_built_from_is_there():
    for service in COMPOSE["services"].values():
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert (DEPLOY / "nginx" / "watchkeeper.conf").is_file()


@pytest.mark.skipif(NGINX is None, reason="no nginx here: apt-get install nginx")
def test_nginx_serves_the_record_over_tls_and_nothing_else(tmp_path):
    site = tmp_path / "record"
    (site / "hero").mkdir(parents=True)
    (site / "index.html").write_text("<!doctype html>record")
    (site / ".record.json").write_text("{}")
    (site / "hero" / "hero.parquet").write_bytes(b"PAR1")
    names = [
        "-keyout",
        str(tmp_path / "privkey.pem"),
        "-out",
        str(tmp_path / "fullchain.pem"),
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names],
        check=True,
        capture_output=True,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = (DEPLOY / "nginx" / "watchkeeper.conf").read_text(encoding="utf-8")
    for old, new in (("listen 8443", f"listen 127.0.0.1:{port}"), ("/etc/nginx/tls", str(tmp_path)), ("/srv/record/", f"{site}/"),
                     ("http://prefect:4200", "http://127.0.0.1:9")):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    temporary = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""  # the test's folder is nobody else's
    head = f"daemon off; {user} pid {tmp_path}/pid; error_log {tmp_path}/log;\nevents {{}}\n"
    whole = f"{head}http {{ access_log off;\n{temporary}{text}}}\n"
    (tmp_path / "nginx.conf").write_text(whole)
    server = subprocess.Popen(
        [NGINX, "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "log"), "-p", str(tmp_path)]
    )
    try:
        context = ssl.create_default_context(cafile=str(tmp_path / "fullchain.pem"))

        def get(path):
            request = f"https://localhost:{port}{path}"
            for _ in range(100):
                try:
                    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                        return answer.status, answer.headers, answer.read()
                except urllib.error.HTTPError as error:
                    return error.code, error.headers, b""
                except urllib.error.URLError:
                    time.sleep(0.1)
            raise AssertionError((tmp_path / "log").read_text())

        status, headers, body = get("/")
        assert (status, body) == (200, b"<!doctype html>record") and headers["X-Content-Type-Options"] == "nosniff"
        assert get("/record/hero/hero.parquet")[1]["Content-Type"] == "application/vnd.apache.parquet"
        paths = ("/record/.record.json", "/record/hero/", "/record../nginx.conf", "/api/health", "/x")
        assert [get(path)[0] for path in paths] == [404, 403, 404, 502, 404]
    finally:
        server.terminate()
        server.wait(10)
