"""The name under which SGLang looks for one of the tree kernels."""

from sgl_kernel.trees import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
