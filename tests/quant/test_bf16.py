from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("BF16", raw("BF16", {0: "c0bf"}), {}, rest=-1.5)


def test_equals_the_gguf_package() -> None:
    agrees("BF16")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("BF16")
