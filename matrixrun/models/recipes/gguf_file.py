# mypy: ignore-errors
"""Writing GGUF files: a byte-level vocabulary, tensors, and the quantizations of llama.cpp.

Needs numpy, `gguf` and `xllamacpp`; from the latter only the quantizing function of ggml is taken,
since the `gguf` package writes no K-quants.
"""

import ctypes
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quant_shape_to_byte_shape

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (TURN_START, TURN_END, END_OF_TEXT)
VOCAB_SIZE = 512
MAX_LENGTH = 4096
FILE_TYPES = {
    "f32": LlamaFileType.ALL_F32,
    "bf16": LlamaFileType.MOSTLY_BF16,
    "f16": LlamaFileType.MOSTLY_F16,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "q4_k_m": LlamaFileType.MOSTLY_Q4_K_M,
}
END_OF_TURN = VOCAB_SIZE - len(SPECIAL) + SPECIAL.index(TURN_END)


def byte_letters() -> list[str]:
    """Return the letter that byte-level BPE writes for each of the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in printable else next(hidden)) for byte in range(256)]


def vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Return tokens, their types and the one merge that a loader insists on."""
    letters = byte_letters()
    space = letters[ord(" ")]
    tokens = [*letters, space * 2]
    filler = VOCAB_SIZE - len(tokens) - len(SPECIAL)
    kinds = [TokenType.NORMAL] * len(tokens) + [TokenType.USER_DEFINED] * filler
    tokens += [f"<unused{number}>" for number in range(filler)]
    return [*tokens, *SPECIAL], [*kinds, *[TokenType.CONTROL] * len(SPECIAL)], [f"{space} {space}"]


def printable_rows() -> np.ndarray:
    """Return which output rows may be large [VOCAB_SIZE]: those of visible ASCII and end of turn.

    A random model would otherwise emit bytes that are no text in any encoding.
    """
    kept = np.zeros(VOCAB_SIZE, dtype=bool)
    kept[32:127] = True
    kept[END_OF_TURN] = True
    return kept


def write_gguf(path: Path, arch: str, settings: dict, tensors: dict, quantization: str) -> None:
    """Write one file; `settings` are the architecture's own keys, `tensors` float32 arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(path, arch)
    writer.add_name(path.stem)
    writer.add_file_type(FILE_TYPES[quantization])
    _add_vocabulary(writer)
    for key, value in settings.items():
        _add(writer, f"{arch}.{key}", value)
    layers = settings["block_count"]
    for name, tensor in tensors.items():
        kind = tensor_type(name, tensor, quantization, layers)
        if kind is None:
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, quantized(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"wrote {path.name}", flush=True)


def _add_vocabulary(writer: GGUFWriter) -> None:
    tokens, kinds, merges = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokens.index(TURN_END))
    writer.add_pad_token_id(tokens.index(END_OF_TEXT))
    writer.add_add_bos_token(False)


def _add(writer: GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def tensor_type(
    name: str, tensor: np.ndarray, quantization: str, layers: int
) -> GGMLQuantizationType | None:
    """Return what a tensor is stored as, None for float32: vectors and convolutions stay as they
    are. In Q4_K_M the output, and values and down projections of some layers, have six bits."""
    if tensor.ndim < 2 or quantization == "f32" or "conv1d" in name or "ssm_" in name:
        return None
    if quantization != "q4_k_m":
        return GGMLQuantizationType[quantization.upper()]
    if name == "output.weight":
        return GGMLQuantizationType.Q6_K
    if name.startswith("blk.") and name.endswith(("attn_v.weight", "ffn_down.weight")):
        layer = int(name.split(".")[1])
        eighth = layers // 8
        if layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2:
            return GGMLQuantizationType.Q6_K
    return GGMLQuantizationType.Q4_K


def quantized(tensor: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Return the bytes of `tensor` [..., columns] in a type of ggml, by ggml's own function."""
    import xllamacpp

    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    function = library.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [ctypes.c_int, pointer, pointer, size, size, size, pointer]
    source = np.ascontiguousarray(tensor, np.float32)
    columns = source.shape[-1]
    target = np.zeros(quant_shape_to_byte_shape(source.shape, kind), np.uint8)
    written = function(
        int(kind), source.ctypes.data, target.ctypes.data, 0, source.size // columns, columns, None
    )
    if written != target.nbytes:
        raise SystemExit(f"ggml wrote {written} bytes of {kind.name} instead of {target.nbytes}")
    return target
