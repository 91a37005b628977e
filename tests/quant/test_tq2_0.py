from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("TQ2_0", raw("TQ2_0", {0: "e4", 32: "02", 64: "0040"}), {32: 0.0, 64: 2.0, 96: 4.0, 128: 2.0}, rest=-2.0)


def test_equals_the_gguf_package() -> None:
    agrees("TQ2_0")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("TQ2_0")
