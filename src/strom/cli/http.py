"""Small JSON requests of the command line, through the standard library. What goes wrong becomes an error of ours."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from strom.core.errors import AuthError, BadRequest, ConfigError, NotFound, ProviderError, StromError, Unreachable
from strom.upstreams.settings import Secret
from strom.upstreams.urls import BaseUrl, parse_base_url

TIMEOUT_S = 10.0
_LONGEST = 64 * 1024 * 1024


class Api:
    """A gateway or a backend that is asked for JSON.

    `headers` may hold a key: they are never shown. `key_option`: what names the variable with the key, for the error.
    """

    def __init__(self, base: BaseUrl, headers: Mapping[str, str], *, key_option: str = "--api-key-env") -> None:
        self._key_option = key_option
        self._base = base
        self._headers = dict(headers)
        proxies: dict[str, str] | None = {} if _is_loopback(base.origin.host) else None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """Raises StromError."""
        return self.send("GET", path + (f"?{urlencode(params)}" if params else ""))

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """`body`: what becomes JSON. Raises StromError."""
        origin = self._base.origin
        url = f"{origin.scheme}://{origin.authority.decode()}{self._base.target(path)}"
        headers = {"accept": "application/json", **self._headers}
        data = None
        if body is not None:
            data, headers["content-type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return json.loads(response.read(_LONGEST))
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except (urllib.error.URLError, TimeoutError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise Unreachable(f"{self._base} cannot be reached: {reason}") from None
        except ValueError:
            raise ProviderError(f"{self._base} did not answer with JSON: is it the right address?") from None

    def _refusal(self, error: urllib.error.HTTPError) -> StromError:
        text = f"{self._base} answered {error.code}: {_message_in(error.read(65536)) or error.reason}"
        match error.code:
            case 401 | 403:
                return AuthError(f"{text} (name the variable that holds a key with {self._key_option})")
            case 404:
                return NotFound(text)
            case 400:
                return BadRequest(text)
            case _:
                return ProviderError(text)


def gateway_api(url: str, key_env: str | None) -> Api:
    """A running gateway; `key_env` names the variable with an admin key for it. Raises ConfigError."""
    key = key_from(key_env)
    return Api(_parse(url, "--url"), {"authorization": f"Bearer {key.reveal()}"} if key else {})


def key_from(variable: str | None) -> Secret | None:
    """The key in an environment variable; None when no variable is named. Raises ConfigError."""
    if variable is None:
        return None
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"the environment variable {variable} is not set")
    return Secret(value)


def _parse(url: str, option: str) -> BaseUrl:
    try:
        return parse_base_url(url)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error.message}") from None


def _message_in(body: bytes) -> str:
    """The words in an error body of any of our protocols, or in problem JSON; nothing for HTML and the like."""
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    inner = found.get("error", found.get("detail")) if isinstance(found, dict) else None
    text = inner.get("message") if isinstance(inner, dict) else inner
    return text if isinstance(text, str) else ""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
