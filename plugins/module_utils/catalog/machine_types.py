# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA GPUs of the machine types of AWS, Azure and Google Cloud, by machine type.

Sources: docs.aws.amazon.com/ec2 "Accelerated computing instances"; learn.microsoft.com/azure/virtual-machines "GPU accelerated";
cloud.google.com/compute/docs/gpus. The table contains neither types with a fraction of a GPU nor types whose GPUs are chosen separately (Google
Cloud's n1).
"""

from __future__ import annotations

import re

from .flavors import FlavorGpus

# For each family of types: patterns for the size of a type, each with the number of GPUs.
_ONE_TO_8 = {r"(2|4|8|16)?xlarge": 1, r"(12|24)xlarge": 4, r"48xlarge": 8}
_FAMILIES: tuple[tuple[str, str, tuple[str, ...], dict[str, int]], ...] = (
    # AWS
    (r"g4dn\.", "T4", ("T4",), {r"(2|4|8|16)?xlarge": 1, r"12xlarge": 4, r"metal": 8}),
    (r"g5\.", "A10G", ("A10G",), _ONE_TO_8),
    (r"g6\.", "L4", ("L4",), _ONE_TO_8),
    (r"g6e\.", "L40S", ("L40S",), _ONE_TO_8),
    (r"p3\.", "V100", ("V100-SXM2-16GB",), {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    (r"p3dn\.", "V100", ("V100-SXM2-32GB",), {"24xlarge": 8}),
    (r"p4d\.", "A100", ("A100-SXM4-40GB",), {"24xlarge": 8}),
    (r"p4de\.", "A100", ("A100-SXM4-80GB",), {"24xlarge": 8}),
    (r"p5\.", "H100", ("H100-80GB-HBM3",), {"4xlarge": 1, "48xlarge": 8}),
    (r"p5en?\.", "H200", ("H200",), {"48xlarge": 8}),
    (r"p6-b200\.", "B200", ("B200",), {"48xlarge": 8}),
    # Azure
    (r"standard_nc", "T4", ("T4",), {r"(4|8|16)as_t4_v3": 1, r"64as_t4_v3": 4}),
    (r"standard_nc", "V100", ("V100-PCIE-16GB",), {"6s_v3": 1, "12s_v3": 2, "24r?s_v3": 4}),
    (r"standard_nc", "A100", ("A100-80GB-PCIe",), {"24ads_a100_v4": 1, "48ads_a100_v4": 2, "96ads_a100_v4": 4}),
    (r"standard_nc", "H100", ("H100-NVL",), {"40ads_h100_v5": 1, "80adis_h100_v5": 2}),
    (r"standard_nd", "A100", ("A100-SXM4-40GB",), {"96asr(_a100)?_v4": 8}),
    (r"standard_nd", "A100", ("A100-SXM4-80GB",), {"96amsr_a100_v4": 8}),
    (r"standard_nd", "H100", ("H100-80GB-HBM3",), {"96isr_h100_v5": 8}),
    (r"standard_nd", "H200", ("H200",), {"96isr_h200_v5": 8}),
    (r"standard_nv", "A10", ("A10",), {"36adm?s_a10_v5": 1, "72ads_a10_v5": 2}),
    # Google Cloud
    (r"g2-standard-", "L4", ("L4",), {"(4|8|12|16|32)": 1, "24": 2, "48": 4, "96": 8}),
    (r"a2-highgpu-", "A100", ("A100-SXM4-40GB",), {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    (r"a2-megagpu-", "A100", ("A100-SXM4-40GB",), {"16g": 16}),
    (r"a2-ultragpu-", "A100", ("A100-SXM4-80GB",), {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    (r"a3-highgpu-", "H100", ("H100-80GB-HBM3",), {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    (r"a3-megagpu-", "H100", ("H100-80GB-HBM3",), {"8g": 8}),
    (r"a3-ultragpu-", "H200", ("H200",), {"8g": 8}),
    (r"a4-highgpu-", "B200", ("B200",), {"8g": 8}),
)

# Machine types with NVIDIA GPUs, including those whose number of GPUs or fraction of a GPU is not in the table.
_WITH_GPUS = re.compile(
    r"(g[3-7](dn|e|f|g|s)?|gr6f?|p[2-6](d|dn|de|e|en|-b200|-b300|e-gb200)?)\.(\d*xlarge|metal)"  # AWS; g4ad has GPUs of AMD
    r"|standard_n(c\w+|d(?!\w*mi\d)\w+|v\d+(ad)?m?s_(v3|a10_v5))"  # Azure; NVv4 and NVv5 have GPUs of AMD
    r"|(a[234]x?|g[24])-(standard|highgpu|megagpu|ultragpu|edgegpu|maxgpu)-\w+"  # Google Cloud
    r"|(vm|bm)\.gpu(?!\.mi)[\w.]+"  # Oracle Cloud
    r"|ecs\.s?e?gn\d[\w-]*\..+"  # Alibaba Cloud
)
# Labels by which clouds, autoscalers and other tools describe a node's GPU, each with a text that its value contains if the GPU is NVIDIA's.
GPU_LABELS = {
    "cloud.google.com/gke-accelerator": "nvidia",
    "k8s.amazonaws.com/accelerator": "",
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
    "karpenter.azure.com/sku-gpu-manufacturer": "nvidia",
    "kubernetes.azure.com/accelerator": "nvidia",
    "accelerator": "nvidia",
    "cluster-api/accelerator": "",
    "doks.digitalocean.com/gpu-brand": "nvidia",
    "gpu.nvidia.com/model": "",
    "aliyun.accelerator/nvidia_name": "",
}


def has_nvidia_gpu(machine_type: str) -> bool:
    """Whether a machine type of a known cloud has NVIDIA GPUs."""
    return bool(_WITH_GPUS.fullmatch(machine_type.lower()))


def machine_type_gpus(machine_type: str) -> FlavorGpus | None:
    """The GPUs of a machine type; None if it is not in the table."""
    name = machine_type.lower()
    for family, title, keys, sizes in _FAMILIES:
        for size, count in sizes.items():
            if re.fullmatch(family + size, name):
                return FlavorGpus(count, title, keys)
    return None
