from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("Q4_0", raw("Q4_0", {0: "0038", 2: "9f"}), {0: 3.5, 16: 0.5}, rest=-4.0)


def test_equals_the_gguf_package() -> None:
    agrees("Q4_0")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("Q4_0")
