"""What the real client sends, key for key, and the machines that its searches find."""

from __future__ import annotations

from typing import Any, Final

GUIDE_QUERY: Final = (
    "gpu_name=RTX_4090 num_gpus=1 reliability>0.98 inet_down>500 "
    "disk_space>=100 cuda_vers>=12.4 direct_port_count>=1"
)
GUIDE_QUERY_B: Final = "num_gpus=8 gpu_ram>=80 bw_nvlink>0 datacenter=true"
_DEFAULTS: Final[dict[str, Any]] = {
    "verified": {"eq": True},
    "external": {"eq": False},
    "rentable": {"eq": True},
}
SEARCH_A: Final[dict[str, Any]] = {
    **_DEFAULTS,
    "gpu_name": {"eq": "RTX 4090"},
    "num_gpus": {"eq": "1"},
    "reliability": {"gt": "0.98"},
    "inet_down": {"gt": "500"},
    "disk_space": {"gte": "100"},
    "cuda_max_good": {"gte": "12.4"},
    "direct_port_count": {"gte": "1"},
    "order": [["dlperf_per_dphtotal", "desc"]],
    "type": "on-demand",
    "allocated_storage": 5.0,
}
SEARCH_B: Final[dict[str, Any]] = {
    **_DEFAULTS,
    "num_gpus": {"eq": "8"},
    "gpu_ram": {"gte": 80000.0},
    "bw_nvlink": {"gt": "0"},
    "datacenter": {"eq": True},
    "order": [["dph_total", "asc"]],
    "type": "bid",
    "allocated_storage": 5.0,
}
SEARCH_MIXED: Final[dict[str, Any]] = {
    "external": {"eq": False},
    "rentable": {"eq": True},
    "reliability": {"gt": "0.99"},
    "gpu_name": {"in": ["RTX 4090", "RTX 3090"]},
    "geolocation": {"notin": ["CN", "VN"]},
    "driver_version": {"gte": 535086005},
    "duration": {"gt": 2073600.0},
    "gpu_ram": {"gt": 10000.0},
    "rented": {"eq": False},
    "order": [["score", "desc"]],
    "type": "on-demand",
    "allocated_storage": 5.0,
}
CREATE: Final[dict[str, Any]] = {
    "client_id": "me",
    "image": "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime",
    "env": {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "-p 8080:8080": "1"},
    "price": 0.3,
    "disk": 100.0,
    "label": "run-42",
    "extra": None,
    "onstart": "cd /workspace && git clone ...",
    "image_login": None,
    "python_utf8": False,
    "lang_utf8": False,
    "use_jupyter_lab": False,
    "jupyter_dir": None,
    "force": False,
    "cancel_unavail": False,
    "template_hash_id": None,
    "user": None,
    "runtype": "ssh_direc ssh_proxy",
}
LAUNCH: Final[dict[str, Any]] = {
    **{name: value for name, value in CREATE.items() if name not in {"client_id", "price"}},
    "disk": 32.0,
    "q": {
        **_DEFAULTS,
        "rented": {"eq": False},
        "num_gpus": {"eq": "1"},
        "gpu_name": {"eq": "RTX 4090"},
        "geolocation": {"in": ["AL", "AD", "SE"]},
        "disk_space": {"gte": "32.0"},
        "order": [["score", "desc"]],
        "type": "on-demand",
        "limit": 3,
        "allocated_storage": 32.0,
    },
}
