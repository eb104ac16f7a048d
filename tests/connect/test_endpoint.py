"""Endpoints: made from a cluster's name or a DSN, validated, and safe by default."""

from __future__ import annotations

import hashlib
import pickle
import socket
import ssl
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytest_dsql.connect.endpoint import AMAZON_ROOT, Endpoint, IamAuth, PasswordAuth, region_of
from pytest_dsql.errors import ConnectionFailed, UsageError

ID = "abcdefghijklmnopqrstuvwxy3"
HOST = f"{ID}.dsql.eu-central-1.on.aws"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)


def usage_error(make: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as caught:
        make(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestForCluster:
    @pytest.mark.parametrize("name", [HOST, HOST.upper(), f" {HOST}\n", f"{HOST}."])
    def test_a_host_name_tells_all(self, name: str) -> None:
        endpoint = Endpoint.for_cluster(name)
        assert (endpoint.host, endpoint.region, endpoint.user, endpoint.dialect) == (
            HOST,
            "eu-central-1",
            "admin",
            "dsql",
        )
        assert endpoint.sslmode == "verify-full"

    def test_an_id_needs_its_region(self) -> None:
        assert Endpoint.for_cluster(ID, region="eu-central-1").host == HOST
        assert "--dsql-region" in usage_error(Endpoint.for_cluster, ID)

    def test_a_privatelink_name_is_one_too(self) -> None:
        assert Endpoint.for_cluster(f"{ID}.dsql-fnh4.us-east-1.on.aws").region == "us-east-1"

    def test_user_and_profile_are_taken(self) -> None:
        endpoint = Endpoint.for_cluster(HOST, user="app", profile="bench")
        assert (endpoint.user, endpoint.auth) == ("app", IamAuth(profile="bench"))

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "localhost",
            ID[:-1],
            ID + "a",
            ID[:-1] + "_",
            f"{ID}.dsql.eu-central-1.on.aws.evil.example",
            f"{ID}.rds.eu-central-1.amazonaws.com",
            f"evil.example/{HOST}",
            f"https://{HOST}",
            f"{HOST}:5432",
            f"x{HOST}",
            "postgresql://u:geheim@h/d",
        ],
    )
    def test_anything_else_is_refused_with_the_form(self, name: str) -> None:
        message = usage_error(Endpoint.for_cluster, name)
        assert "--dsql-endpoint" in message
        assert "<26-character id>.dsql.<region>.on.aws" in message
        assert "geheim" not in message

    def test_a_region_that_contradicts_the_name_is_refused(self) -> None:
        assert "--dsql-region" in usage_error(Endpoint.for_cluster, HOST, region="us-east-1")

    @pytest.mark.parametrize("region", ["", "Frankfurt", "eu-central-1.evil.example", "eu central 1"])
    def test_a_region_that_is_none_is_refused(self, region: str) -> None:
        assert "--dsql-region" in usage_error(Endpoint.for_cluster, ID, region=region)

    @given(st.text(max_size=80))
    def test_no_text_does_anything_but_succeed_or_say_why(self, name: str) -> None:
        try:
            endpoint = Endpoint.for_cluster(name, region="eu-central-1")
        except UsageError:
            usage_error(Endpoint.for_cluster, name, region="eu-central-1")
        else:
            assert region_of(endpoint.host) == "eu-central-1"


class TestFromDsn:
    @pytest.mark.parametrize(
        "dsn",
        [
            "postgresql://app:geheim@db.example:6432/shop?sslmode=require&application_name=x",
            "host=db.example port=6432 user=app password=geheim dbname=shop sslmode=require application_name=x",
        ],
    )
    def test_both_forms_say_the_same(self, dsn: str) -> None:
        endpoint = Endpoint.from_dsn(dsn)
        assert endpoint == Endpoint(
            "db.example",
            port=6432,
            user="app",
            dbname="shop",
            sslmode="require",
            auth=PasswordAuth("geheim"),
            dialect="postgresql",
            parameters={"application_name": "x"},
        )

    @pytest.mark.parametrize("sslmode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"])
    def test_tls_is_as_the_dsn_says(self, sslmode: str) -> None:
        assert Endpoint.from_dsn(f"postgresql://u@db.example/d?sslmode={sslmode}").sslmode == sslmode

    def test_what_is_left_open_is_libpqs_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGUSER", "somebody")
        monkeypatch.setenv("PGPORT", "6000")
        monkeypatch.setenv("PGSSLMODE", "verify-ca")
        endpoint = Endpoint.from_dsn("host=db.example")
        assert (endpoint.user, endpoint.dbname, endpoint.port) == ("somebody", "somebody", 6000)
        assert endpoint.sslmode == "verify-ca"
        assert endpoint.auth == PasswordAuth(None)

    def test_sslmode_defaults_to_libpqs(self) -> None:
        assert Endpoint.from_dsn("postgresql://u@db.example/d").sslmode == "prefer"

    def test_a_dsql_host_makes_an_iam_endpoint(self) -> None:
        assert Endpoint.from_dsn(f"postgresql://{HOST}/postgres") == Endpoint.for_cluster(HOST)

    def test_a_dsql_host_with_a_password_sends_that(self) -> None:
        endpoint = Endpoint.from_dsn(f"host={HOST} user=app password=token")
        assert (endpoint.auth, endpoint.dialect, endpoint.user) == (PasswordAuth("token"), "dsql", "app")

    @pytest.mark.parametrize("sslmode", ["disable", "allow", "prefer"])
    def test_a_dsql_host_without_sure_tls_is_refused(self, sslmode: str) -> None:
        for dsn in (f"host={HOST} sslmode={sslmode}", f"host={HOST} password=x sslmode={sslmode}"):
            message = usage_error(Endpoint.from_dsn, dsn)
            assert f"sslmode={sslmode}" in message
            assert "verify-full" in message

    def test_an_environment_without_tls_does_not_weaken_a_dsql_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGSSLMODE", "disable")
        assert Endpoint.from_dsn(f"host={HOST}").sslmode == "verify-full"

    def test_a_unix_socket_is_a_host(self) -> None:
        assert Endpoint.from_dsn("host=/run/postgresql user=u dbname=d").host == "/run/postgresql"

    def test_an_address_alone_is_a_host(self) -> None:
        endpoint = Endpoint.from_dsn("hostaddr=127.0.0.1 user=u")
        assert (endpoint.host, endpoint.hostaddr) == ("127.0.0.1", "127.0.0.1")

    @pytest.mark.parametrize(
        ("dsn", "says"),
        [
            ("", "host"),
            ("user=u dbname=d", "host"),
            ("host=a,b user=u", "one host"),
            ("host=a port=x user=u", "number"),
            ("host=a port=0 user=u", "65535"),
            ("host=a sslmode=sometimes user=u", "sslmode"),
            ("host=a hostaddr=here user=u", "numeric address"),
            ("nonsense", "URI or key=value"),
            ("postgresql://u@h/d?frobnicate=1", "URI or key=value"),
        ],
    )
    def test_a_wrong_one_is_refused(self, dsn: str, says: str) -> None:
        assert says in usage_error(Endpoint.from_dsn, dsn)

    @pytest.mark.parametrize(
        "dsn",
        [
            "host=h password=geheim user",
            "geheim",
            "postgresql://u:geheim%zz@h/d",
            "host=h password='geheim",
            "host=h geheim=1",
            "postgresql://u@h/d?geheim",
            'host=h "geheim" user=u',
        ],
    )
    def test_a_wrong_one_is_not_repeated(self, dsn: str) -> None:
        assert "geheim" not in usage_error(Endpoint.from_dsn, dsn)

    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60))
    def test_no_text_does_anything_but_succeed_or_say_why(self, dsn: str) -> None:
        try:
            Endpoint.from_dsn(dsn)
        except UsageError:
            usage_error(Endpoint.from_dsn, dsn)


class TestValidation:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"host": ""},
            {"host": "a,b"},
            {"host": "a b"},
            {"port": 0},
            {"port": 65536},
            {"user": ""},
            {"dbname": ""},
            {"hostaddr": "localhost"},
            {"hostaddr": "127.0.0.1,"},
            {"sslmode": "none"},
            {"sslnegotiation": "maybe"},
            {"parameters": {"password": "geheim"}},
            {"parameters": {"host": "elsewhere"}},
        ],
    )
    def test_a_wrong_field_is_refused_where_it_is_made(self, wrong: dict[str, Any]) -> None:
        assert "geheim" not in usage_error(Endpoint, **{"host": HOST} | wrong)

    def test_a_token_needs_a_region(self) -> None:
        assert "--dsql-region" in usage_error(Endpoint, "localhost")

    def test_a_token_never_goes_in_clear_text(self) -> None:
        assert "clear text" in usage_error(Endpoint, "localhost", region="eu-central-1", sslmode="disable")

    @pytest.mark.parametrize(
        "half",
        [{"access_key_id": "A"}, {"secret_access_key": "geheim"}, {"session_token": "geheim"}],
    )
    def test_half_of_a_pair_of_keys_is_refused(self, half: dict[str, str]) -> None:
        assert "geheim" not in usage_error(IamAuth, **half)

    def test_a_profile_and_keys_are_refused(self) -> None:
        usage_error(IamAuth, profile="p", access_key_id="A", secret_access_key="s")

    def test_parameters_do_not_change_behind_its_back(self) -> None:
        parameters = {"application_name": "x"}
        endpoint = Endpoint(HOST, parameters=parameters)
        parameters["application_name"] = "y"
        assert endpoint.parameters["application_name"] == "x"


SECRETIVE = Endpoint(
    HOST,
    auth=IamAuth(access_key_id="AKIAX", secret_access_key="geheim", session_token="geheim"),
    parameters={"sslpassword": "geheim"},
)


def test_no_secret_in_any_repr() -> None:
    with_password = Endpoint("db", auth=PasswordAuth("geheim"), dialect="postgresql")
    for endpoint in (SECRETIVE, with_password):
        assert "geheim" not in repr(endpoint) + str(endpoint) + endpoint.describe()


def test_it_travels_and_compares() -> None:
    there = pickle.loads(pickle.dumps(SECRETIVE))
    assert there == SECRETIVE
    assert hash(there) == hash(SECRETIVE)


def test_describe_says_who_connects_where_and_how() -> None:
    assert Endpoint(HOST).describe() == f"admin@{HOST}:5432/postgres (dsql, IAM token, sslmode=verify-full)"


class TestConninfo:
    def test_dsql_gets_a_verified_direct_connection(self) -> None:
        conninfo = Endpoint(HOST).conninfo("token")
        assert conninfo["sslmode"] == "verify-full"
        assert conninfo["sslrootcert"] == str(AMAZON_ROOT)
        assert conninfo.get("sslnegotiation") == ("direct" if pq.version() >= 170000 else None)
        assert conninfo["password"] == "token"

    def test_the_users_root_certificates_come_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGSSLROOTCERT", "/etc/mine.pem")
        assert Endpoint(HOST).conninfo()["sslrootcert"] == "/etc/mine.pem"
        assert Endpoint(HOST, sslrootcert="/etc/given.pem").conninfo()["sslrootcert"] == "/etc/given.pem"

    def test_plain_postgresql_is_left_to_libpq(self) -> None:
        conninfo = Endpoint.from_dsn("postgresql://u@db.example/d").conninfo()
        assert not {"sslrootcert", "sslnegotiation", "gssencmode", "password"} & set(conninfo)

    def test_a_dsn_that_leads_to_dsql_by_another_name_stays_as_written(self) -> None:
        endpoint = Endpoint.from_dsn("host=tunnel user=u password=p sslmode=verify-full")
        assert replace(endpoint, dialect="dsql").conninfo() == endpoint.conninfo()

    def test_the_environment_leads_nowhere_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
        monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=1")
        options = {
            one.keyword: one.val
            for one in pq.PGconn.connect_start(
                make_conninfo("", **Endpoint("x", hostaddr="", region="eu-central-1").conninfo()).encode()
            ).info
        }
        assert not options[b"hostaddr"]
        assert not options[b"options"]

    def test_every_address_has_its_name(self) -> None:
        conninfo = replace(Endpoint(HOST), hostaddr="2001:db8::1,192.0.2.1").conninfo()
        assert (conninfo["host"], conninfo["hostaddr"]) == (f"{HOST},{HOST}", "2001:db8::1,192.0.2.1")

    def test_further_parameters_have_the_last_word(self) -> None:
        endpoint = Endpoint(HOST, parameters={"application_name": "mine", "keepalives": "0"})
        assert (endpoint.conninfo()["application_name"], endpoint.conninfo()["keepalives"]) == ("mine", "0")

    def test_sessions_name_themselves(self) -> None:
        assert Endpoint(HOST).conninfo()["application_name"].startswith("pytest-dsql/")

    def test_a_dead_peer_is_noticed(self) -> None:
        conninfo = Endpoint(HOST).conninfo()
        assert conninfo["keepalives"] == "1"
        assert int(conninfo["tcp_user_timeout"]) == 30_000

    @pytest.mark.parametrize("endpoint", [Endpoint(HOST), Endpoint.from_dsn("host=h user=u")])
    def test_libpq_knows_every_parameter(self, endpoint: Endpoint) -> None:
        assert conninfo_to_dict(make_conninfo("", **endpoint.conninfo("x")))["host"] == endpoint.host

    def test_an_endpoint_with_a_password_sends_it(self) -> None:
        endpoint = Endpoint.from_dsn("host=h user=u password=p")
        assert endpoint.conninfo()["password"] == "p"
        assert endpoint.conninfo("other")["password"] == "other"


class TestResolved:
    def test_a_name_is_looked_up_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        endpoint = Endpoint.from_dsn("host=localhost user=u").resolved()
        monkeypatch.setattr(socket, "getaddrinfo", None)
        assert "127.0.0.1" in endpoint.addresses
        assert endpoint.resolved() is endpoint

    def test_all_addresses_are_kept_in_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 5432, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 5432)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 5432)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: answers)
        assert Endpoint(HOST).resolved().addresses == ("2001:db8::1", "192.0.2.1")

    def test_a_unix_socket_stays(self) -> None:
        endpoint = Endpoint.from_dsn("host=/run/postgresql user=u")
        assert endpoint.resolved() is endpoint

    @pytest.mark.parametrize("host", ["absent.invalid", "a" * 70 + ".invalid", "ä" * 80])
    def test_an_unknown_name_is_a_failed_connection(self, host: str) -> None:
        with pytest.raises(ConnectionFailed, match="cannot resolve") as caught:
            Endpoint.from_dsn(f"host={host} user=u").resolved()
        assert caught.value.phase == "resolve"


def test_the_shipped_root_is_amazons() -> None:
    pem = AMAZON_ROOT.read_text()
    certificate = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN") :])
    # https://www.amazontrust.com/repository/
    assert hashlib.sha256(certificate).hexdigest() == "8ecde6884f3d87b1125ba31ac3fcb13d7016de7f57cc904fe1cb97c6ae98196e"


def test_openssl_reads_the_shipped_root() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(AMAZON_ROOT)
    assert context.cert_store_stats()["x509_ca"] == 1
