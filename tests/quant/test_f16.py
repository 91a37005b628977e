from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("F16", raw("F16", {0: "00be"}), {}, rest=-1.5)


def test_equals_the_gguf_package() -> None:
    agrees("F16")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("F16")
