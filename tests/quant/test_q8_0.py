from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("Q8_0", raw("Q8_0", {0: "0034", 2: "80", 33: "7f"}), {0: -32.0, 31: 31.75}, rest=0.0)


def test_equals_the_gguf_package() -> None:
    agrees("Q8_0")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("Q8_0")
