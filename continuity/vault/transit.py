r"""Master keys wrapped by HashiCorp Vault's Transit engine: ``instance/vault.transit``. Needs the extra ``kms``.

    atmem-transit-keys 1\n
    <mount>/<name of the key in Transit>\n
    <key id> <ciphertext as Transit gives it: vault:v1:…>\n               one line a key

Rules:

* The only module that imports hvac. Transit encrypts and decrypts; its own key never leaves it, ours are never stored
  there.
* What Transit encrypts is ``atmem-master-key 1`` with the key's number before the 32 bytes: a line under another number
  does not open.
* Every answer is awaited for `TIMEOUT_S` at most; redirects are not followed. What goes wrong is a `KeySourceError`
  that says which kind of trouble it is, and repeats neither token nor answer.
* The token is read from its file for each use: whatever renews it needs to tell nobody.
* Transit's own rotation makes newer ciphertexts; older ones open until its ``min_decryption_version`` says otherwise.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hvac
import hvac.exceptions
import requests

from continuity.errors import KeySourceError
from continuity.vault import cleartext, files
from continuity.vault.envelope import KEY_BYTES
from continuity.vault.keyring import KEYS_MAX, Keyring
from continuity.vault.keys import FIRST_KEY_ID, next_after, with_new_key

HEAD: Final = b"atmem-transit-keys 1\n"
TIMEOUT_S: Final = 5
_PLAINTEXT_HEAD: Final = b"atmem-master-key 1 "
_NAME: Final = re.compile(rb"[A-Za-z0-9._/-]{1,128}\n")
_LINE: Final = re.compile(rb"([1-9][0-9]{0,9}) (vault:v[1-9][0-9]{0,8}:[A-Za-z0-9+/]{16,1024}={0,2})\n")
_FILE_BYTES_MAX: Final = 32_768
_TOKEN_BYTES_MAX: Final = 4_096

# First the narrower classes; what is not here is an answer that nobody expects.
_WHY: Final = (
    (hvac.exceptions.Forbidden, "it refuses the token, or the token may not use this key"),
    (hvac.exceptions.Unauthorized, "it refuses the token"),
    (hvac.exceptions.VaultDown, "it is sealed or not ready"),
    (hvac.exceptions.VaultNotInitialized, "it is not initialised"),
    (hvac.exceptions.InvalidPath, "it has no such engine or key"),
    (
        hvac.exceptions.InvalidRequest,
        "it refuses the request: the key is missing there, or the ciphertext is not its own",
    ),
    (hvac.exceptions.RateLimitExceeded, "it is asked too often"),
    (requests.Timeout, "it does not answer in time"),
    (requests.exceptions.SSLError, "its certificate is not trusted"),
    (requests.ConnectionError, "it cannot be reached"),
)


@dataclass(frozen=True, slots=True)
class TransitSettings:
    """Where Transit is.

    Attributes:
        url: Address of Vault, without a path.
        mount: Where the engine is mounted.
        key: Name of the key there.
        token_file: Private file with the token.
        ca_file: Certificates to trust in place of the system's, or None.
        namespace: Vault's namespace, or None.
    """

    url: str
    mount: str
    key: str
    token_file: Path
    ca_file: Path | None = None
    namespace: str | None = None


class TransitKeyProvider:
    """Master keys that Transit unwraps at every start."""

    kind: Final = "transit"

    def __init__(self, path: Path, settings: TransitSettings, *, timeout_s: int = TIMEOUT_S) -> None:
        """Name the file and the service; nothing is read and nobody asked yet."""
        self.path = path
        self._settings = settings
        self._timeout_s = timeout_s

    def create(self, *, entropy: Callable[[int], bytes] = os.urandom) -> Keyring:
        """Make a new random master key, let Transit wrap it and keep what it gave, durable before this returns.

        Raises:
            KeySourceError: Transit did not wrap it, or the file exists or cannot be made. Nothing was made.
        """
        ring = Keyring({FIRST_KEY_ID: entropy(KEY_BYTES)}, primary_id=FIRST_KEY_ID)
        wrapped = self._wrapped(ring, known={})
        files.create(self.path, lambda: self._content(wrapped))
        return self.load()

    def load(self) -> Keyring:
        """Let Transit unwrap every key of the file. Raises `KeySourceError`."""
        wrapped = self._read()
        client = self._client()
        keys = {key_id: self._unwrap(client, key_id, ciphertext) for key_id, ciphertext in wrapped.items()}
        return Keyring(keys, primary_id=max(keys))

    def next_key_id(self, current: int) -> int:
        """See `RotatingKeys`."""
        ids = self._read()
        return next_after(Keyring(dict.fromkeys(ids, bytes(KEY_BYTES)), primary_id=max(ids)), current)

    def add(self, key_id: int) -> Keyring:
        """See `RotatingKeys`; the keys that are there keep their ciphertexts."""
        known = self._read()
        if key_id not in known:
            ring = with_new_key(self.load(), key_id)
            self._write(self._wrapped(ring, known=known))
        return self.load()

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        """See `RotatingKeys`; asks Transit nothing."""
        known = self._read()
        if key_id not in known:
            raise KeySourceError(f"{self.path} does not hold key {key_id}.")
        wanted = {other: known[other] for other in known if other in keep | {key_id}}
        if wanted != known:
            self._write(wanted)

    def _write(self, wrapped: dict[int, str]) -> None:
        files.replace(self.path, lambda: self._content(wrapped))

    def _read(self) -> dict[int, str]:
        lines = files.read(self.path, most=_FILE_BYTES_MAX).splitlines(keepends=True)
        matches = [_LINE.fullmatch(line) for line in lines[2:]]
        is_ours = lines[:1] == [HEAD] and len(lines) > 2 and _NAME.fullmatch(lines[1])  # noqa: PLR2004 - head, name, key
        wrapped = {int(match[1]): match[2].decode() for match in matches if match is not None}
        if not is_ours or None in matches or not len(wrapped) == len(matches) <= KEYS_MAX:
            raise KeySourceError(f"{self.path} is not a complete file of Transit keys of format 1.")
        if lines[1] != self._name():
            raise KeySourceError(f"{self.path} was wrapped by another key of Transit than the settings name.")
        return wrapped

    def _content(self, wrapped: dict[int, str]) -> bytes:
        lines = (b"%d %s\n" % (key_id, wrapped[key_id].encode()) for key_id in sorted(wrapped))
        return HEAD + self._name() + b"".join(lines)

    def _name(self) -> bytes:
        return f"{self._settings.mount}/{self._settings.key}\n".encode()

    def _wrapped(self, ring: Keyring, *, known: dict[int, str]) -> dict[int, str]:
        client = self._client()
        return {key_id: known.get(key_id) or self._wrap(client, ring, key_id) for key_id in sorted(ring.key_ids)}

    def _wrap(self, client: Any, ring: Keyring, key_id: int) -> str:
        answer = self._asked(lambda: client.secrets.transit.encrypt_data(
            name=self._settings.key, plaintext=_plaintext(ring, key_id), mount_point=self._settings.mount
        ))  # fmt: skip
        ciphertext = answer.get("ciphertext")
        if not isinstance(ciphertext, str) or not _LINE.fullmatch(b"%d %s\n" % (key_id, ciphertext.encode())):
            raise self._trouble("its answer is none of Transit's")
        return ciphertext

    def _unwrap(self, client: Any, key_id: int, ciphertext: str) -> bytes:
        key = _key_of(key_id, self._asked(lambda: client.secrets.transit.decrypt_data(
            name=self._settings.key, ciphertext=ciphertext, mount_point=self._settings.mount
        )))  # fmt: skip
        if key is None:
            raise self._trouble(f"what it unwraps is not master key {key_id}")
        return key

    def _client(self) -> Any:
        token = files.read(self._settings.token_file, most=_TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
        if not token or not token.isprintable() or not token.isascii():
            raise KeySourceError(f"{self._settings.token_file} does not hold a token.")
        verify: bool | str = True if self._settings.ca_file is None else str(self._settings.ca_file)
        session = requests.Session()
        # A proxy or a netrc of this machine's environment must not see the token.
        session.trust_env = False
        session.verify = verify
        return hvac.Client(
            url=self._settings.url, token=token, verify=verify, timeout=self._timeout_s, allow_redirects=False,
            session=session, namespace=self._settings.namespace,
        )  # fmt: skip

    def _asked(self, ask: Callable[[], Any]) -> dict[str, Any]:
        """Ask Transit; give what is under ``data``. An error carries neither token nor plaintext."""
        why = "its answer is none of Transit's"
        try:
            answer = ask()
            data = answer.get("data") if isinstance(answer, dict) else None
            if isinstance(data, dict):
                return data
        except (hvac.exceptions.VaultError, requests.RequestException, ValueError) as error:
            why = next((text for kind, text in _WHY if isinstance(error, kind)), why)
        raise self._trouble(why)

    def _trouble(self, why: str) -> KeySourceError:
        return KeySourceError(f"The key service at {self._settings.url} cannot be used: {why}.")

    def __repr__(self) -> str:
        """Name the file and the service and nothing else."""
        return f"<TransitKeyProvider {self.path} at {self._settings.url}>"


def _head(key_id: int) -> bytes:
    return _PLAINTEXT_HEAD + key_id.to_bytes(4, "big")


def _plaintext(ring: Keyring, key_id: int) -> str:
    return base64.b64encode(_head(key_id) + cleartext.export(ring)[key_id]).decode()


def _key_of(key_id: int, answer: dict[str, Any]) -> bytes | None:
    """Read the key that Transit has unwrapped; None if it is not of that number, or no key."""
    head = _head(key_id)
    try:
        plaintext = base64.b64decode(answer.get("plaintext", ""), validate=True)
    except (ValueError, TypeError):
        return None
    is_ours = plaintext.startswith(head) and len(plaintext) == len(head) + KEY_BYTES
    return plaintext[len(head) :] if is_ours else None
