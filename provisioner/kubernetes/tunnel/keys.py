"""The keys between the gateway and one kernel's sidecar: a token, and a certificate that no other port has."""

from __future__ import annotations

import base64
import secrets
import ssl
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jupyter_aliquot.provisioner.errors import StateError
from jupyter_aliquot.provisioner.kubernetes.settings import RelayKeys

_TOKEN_BYTES = 32
# Clocks of nodes differ. A kernel does not live as long as its certificate.
_SKEW, _LIFE = timedelta(days=1), timedelta(days=3650)


def make_keys(connection_key: str, curve_secretkey: str = "", now: datetime | None = None) -> RelayKeys:
    """Return new keys for a kernel with these of its connection file."""
    now = now or datetime.now(timezone.utc)
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "aliquot-kernel")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    return RelayKeys(
        token=secrets.token_urlsafe(_TOKEN_BYTES),
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        private_key=private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        connection_key=connection_key,
        curve_secretkey=curve_secretkey,
    )


def read_keys(secret: Mapping[str, Any]) -> RelayKeys:
    """Return the keys in a kernel's Secret, the inverse of ``relay_secret``. Raises StateError."""
    try:
        data = {name: base64.b64decode(value) for name, value in secret["data"].items()}
        token, key = data["token"].decode(), data["connection-key"].decode()
        return RelayKeys(token, data["tls.crt"], data["tls.key"], key, data.get("curve-key", b"").decode())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(f"The Secret of a kernel's relay cannot be read: {type(error).__name__}") from error


def client_context(keys: RelayKeys) -> ssl.SSLContext:
    """Return the context that trusts this kernel's port alone. Raises StateError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # pods have addresses, and the certificate is this kernel's own
    try:
        context.load_verify_locations(cadata=keys.certificate.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise StateError(f"The certificate of a kernel's relay cannot be read: {error}") from error
    return context
