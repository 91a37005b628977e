from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("Q5_0", raw("Q5_0", {0: "0040", 2: "01000080", 6: "03", 21: "50"}), {0: 6.0, 31: 10.0}, rest=-32.0)


def test_equals_the_gguf_package() -> None:
    agrees("Q5_0")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("Q5_0")
