"""The reference of settings, docs/reference/configuration.md, made from the help of each trait."""

from __future__ import annotations

from traitlets import HasTraits

from jupyter_aliquot.gateway.accounting.config import Accounting
from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider
from jupyter_aliquot.gateway.config import Aliquot, configuration_page
from jupyter_aliquot.gateway.containers.config import KernelContainers
from jupyter_aliquot.gateway.containers.holders import HolderPods
from jupyter_aliquot.gateway.containers.host_limits import HostLimits
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.containers.pods import KernelPods
from jupyter_aliquot.gateway.culling.policy import Culling
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders
from jupyter_aliquot.gateway.history.config import History
from jupyter_aliquot.gateway.hub_service.identity import HubIdentityProvider
from jupyter_aliquot.gateway.limits.config import Limits
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner

CLASSES: tuple[type[HasTraits], ...] = (
    Accounting,
    Aliquot,
    Culling,
    History,
    ImageCatalogue,
    HostLimits,
    HolderPods,
    KernelContainers,
    KernelPods,
    Limits,
    SharedFolders,
    AliquotIdentityProvider,
    HubIdentityProvider,
    AliquotProvisioner,
)


def settings_page() -> str:
    """Return the page."""
    return configuration_page(*CLASSES)
