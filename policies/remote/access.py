"""Access to a server: the headers Host and Origin, a token, TLS, and the log of connections."""

import hmac
import ipaddress
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.datastructures import Headers

logger = logging.getLogger(__name__)

LOCAL = ("127.0.0.1", "::1", "localhost")
SHORTEST_TOKEN = 32
TOKEN_VARIABLE = "STRINGLINE_TOKEN_FILE"
Refusal = tuple[HTTPStatus, str]


@dataclass(frozen=True)
class ServerAccess:
    """The access to a server; by default without a token and without TLS.

    Independent of the attributes, requests of web pages are refused by their header `Origin`, and
    requests for an unknown name of this machine by their header `Host`, which a page gets by DNS
    rebinding.

    Attributes:
        token_file: File with the token that clients send, with mode 0600; if None, no token.
        certificate: File with the certificate chain, PEM; if None, no TLS.
        private_key: File with its key, PEM, with mode 0600.
        origins: Allowed origins of web pages, such as `https://lab.example`.
        hosts: Allowed names in `Host`, besides IP addresses and localhost.

    Raises:
        ValueError: A file cannot be read, is readable by others, or has an invalid content; or only
            one of `certificate` and `private_key` is given.
    """

    token_file: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reads the files, so that errors precede the start of a server."""
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError(
                f"access.certificate is {self.certificate} and access.private_key is "
                f"{self.private_key}; allowed: both files, or null for both."
            )
        for origin in self.origins:
            if urlsplit(origin).scheme not in ("http", "https") or origin.endswith("/"):
                raise ValueError(
                    f"access.origins contains {origin!r}; allowed: origins such as "
                    "'https://lab.example' or 'http://127.0.0.1:8080'."
                )
        _ = self.token
        _ = self.tls

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the group `access` of a configuration."""
        names = ("token_file", "certificate", "private_key")
        token_file, certificate, private_key = (
            None if plain[name] is None else Path(plain[name]) for name in names
        )
        return cls(
            token_file, certificate, private_key, tuple(plain["origins"]), tuple(plain["hosts"])
        )

    @cached_property
    def token(self) -> str | None:
        """The token that clients send; if None, no token."""
        return None if self.token_file is None else read_token(self.token_file)

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """Certificate and key for the server; if None, no TLS."""
        if self.certificate is None or self.private_key is None:
            return None
        _read_private("private key", self.private_key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A ticket would arrive while the client sends its request, from another thread than that
        # which reads; before Python 3.13 this may end the connection.
        context.num_tickets = 0
        try:
            context.load_cert_chain(self.certificate, self.private_key)
        except OSError as error:  # Also ssl.SSLError.
            raise ValueError(
                f"The certificate {self.certificate} with the private key {self.private_key} "
                f"cannot be used: {error.strerror or error}. Allowed: PEM files that fit each "
                "other."
            ) from error
        return context

    def check_address(self, host: str) -> None:
        """Checks that a token is not sent unencrypted; warns of an address without a token.

        Raises:
            ValueError: There is a token without TLS at an address of a network.
        """
        if host in LOCAL:
            return
        if self.token is not None and self.tls is None:
            raise ValueError(
                f"The token of {self.token_file} would be sent unencrypted to {host}; allowed: "
                "access.certificate and access.private_key for TLS, or host=127.0.0.1."
            )
        if self.token is None:
            logger.warning(
                "Anyone who can reach %s can use this server, because access.token_file is null.",
                host,
            )

    def refusal(self, headers: Headers, sent: str | None, *, page: bool = False) -> Refusal | None:
        """Returns status and reason if a request is refused.

        Args:
            headers: Headers of the request.
            sent: The token that came with it.
            page: Whether the server has a web page of its own, which may connect to it.
        """
        host = ", ".join(headers.get_all("Host"))
        if not self._is_known(host):
            return HTTPStatus.FORBIDDEN, (
                f"The Host is {host!r}; allowed: IP addresses, "
                f"{', '.join(('localhost', *self.hosts))}. Add it to access.hosts."
            )
        allowed = {*self.origins, *((f"http://{host}", f"https://{host}") if page else ())}
        for origin in headers.get_all("Origin"):
            if origin not in allowed:
                return HTTPStatus.FORBIDDEN, (
                    f"The Origin is {origin!r}; allowed: {', '.join(sorted(allowed)) or 'none'}. "
                    "Add it to access.origins."
                )
        if self.token is not None and not hmac.compare_digest(
            (sent or "").encode(), self.token.encode()
        ):
            got = "no token" if sent is None else "another token"
            return HTTPStatus.UNAUTHORIZED, f"The request has {got}; allowed: that of the server."
        return None

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in ("localhost", *self.hosts) or _is_address(name)


def bearer(headers: Headers) -> str | None:
    """Returns the token of the header `Authorization: Bearer TOKEN` (RFC 6750); None: none.

    openpi's client writes `Api-Key TOKEN`.
    """
    kind, _, token = ", ".join(headers.get_all("Authorization")).partition(" ")
    return token.strip() if kind.lower() in ("bearer", "api-key") else None


def read_token(path: Path) -> str:
    """Returns the token of a file.

    Raises:
        ValueError: The file cannot be read, belongs to another user, is readable by others, or does
            not contain one token.
    """
    token = _read_private("token file", path).strip()
    if len(token) < SHORTEST_TOKEN or not all("!" <= character <= "~" for character in token):
        raise ValueError(
            f"The token file {path} has {len(token)} characters; allowed: one token of at least "
            f"{SHORTEST_TOKEN} ASCII characters without spaces, such as the output of python -c "
            "'import secrets; print(secrets.token_urlsafe(32))'."
        )
    return token


def token_for(address: str) -> str | None:
    """Returns the token of the file that `STRINGLINE_TOKEN_FILE` names; None if unset.

    Raises:
        ValueError: See `read_token`; or the address is neither encrypted nor on this machine.
    """
    if not (file := os.environ.get(TOKEN_VARIABLE)):
        return None
    check_encrypted(address, f"The token of {TOKEN_VARIABLE}")
    return read_token(Path(file))


def check_encrypted(address: str, secret: str) -> None:
    """Raises a ValueError if a secret, the subject of a sentence, would be sent unencrypted."""
    parts = urlsplit(address)
    if parts.scheme != "wss" and parts.hostname not in LOCAL:
        raise ValueError(
            f"{secret} would be sent unencrypted to {address}; allowed: addresses with wss://, and "
            f"this machine ({', '.join(LOCAL)})."
        )


def _read_private(kind: str, path: Path) -> str:
    """Returns the text of a file that only its owner can read."""
    try:
        with path.open(encoding="ascii") as file:
            status = os.fstat(file.fileno())
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"The {kind} {path} cannot be read: {reason}.") from error
    if status.st_mode & 0o077:
        raise ValueError(
            f"The {kind} {path} has mode {status.st_mode & 0o777:04o}, so other users can use it; "
            f"allowed: 0600 or 0400. Correct it: chmod 600 {path}"
        )
    if status.st_uid not in (0, os.geteuid()):
        raise ValueError(
            f"The {kind} {path} belongs to user {status.st_uid}; allowed: your user "
            f"({os.geteuid()}) and root."
        )
    return text


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class OneLine(logging.Filter):
    """Reports a connection that ends before its handshake in one line, without a traceback.

    Everybody who reaches the port can cause such reports, before any token is asked for.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Shortens a record; keeps all."""
        if record.msg == "opening handshake failed" and record.exc_info:
            error = record.exc_info[1]
            why = " ".join(str(error).split())[:200] or type(error).__name__
            record.msg = "A connection ended before its handshake: %s"
            record.args = (why,)
            record.exc_info = None
            record.exc_text = None
        return True


def connection_log(name: str) -> logging.Logger:
    """Returns a logger for servers of websockets: one line for each failed handshake."""
    log = logging.getLogger(name)
    if not any(isinstance(one, OneLine) for one in log.filters):
        log.addFilter(OneLine())
    return log
