# What packages contain. The component "package" is one folder: site-packages/finetune of a wheel,
# /usr/lib/finetune of a .deb.
#
#   bin/           the binary, which finds torch/lib next to the folder, and the module for NCCL
#   torch_version  the version of torch that it was built for
#
# The component "share" is the manual page and the completions, made by the binary from its list of
# keys. A wheel adds Python's side (scripts/wheel/finetune), a .deb what cmake/Deb.cmake says.
if(DEFINED SKBUILD)
  set(package_folder finetune)
  set(share_folder ${SKBUILD_DATA_DIR}/share)
else()
  set(package_folder lib/finetune)
  set(share_folder share)
endif()

install(TARGETS finetune RUNTIME DESTINATION ${package_folder}/bin COMPONENT package)
set_target_properties(finetune PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
if(FINETUNE_HAS_NCCL)
  install(TARGETS finetune_nccl LIBRARY DESTINATION ${package_folder}/bin COMPONENT package)
  set_target_properties(finetune_nccl PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
endif()
file(WRITE ${CMAKE_BINARY_DIR}/torch_version "${TorchWheel_VERSION}\n")
install(FILES ${CMAKE_BINARY_DIR}/torch_version DESTINATION ${package_folder} COMPONENT package)

set(generated ${CMAKE_BINARY_DIR}/share)
install(CODE "
  foreach(file man/man1/finetune.1=man bash-completion/completions/finetune=bash
               zsh/site-functions/_finetune=zsh fish/vendor_completions.d/finetune.fish=fish)
    string(REPLACE \"=\" \";\" parts \${file})
    list(GET parts 0 path)
    list(GET parts 1 kind)
    get_filename_component(folder \"${generated}/\${path}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:finetune>\" completion \${kind}
                    OUTPUT_FILE \"${generated}/\${path}\" RESULT_VARIABLE code)
    if(code)
      message(FATAL_ERROR \"finetune completion \${kind} failed: \${code}\")
    endif()
  endforeach()" COMPONENT share)
install(DIRECTORY ${generated}/ DESTINATION ${share_folder} COMPONENT share)

# The .deb: the launcher of the wheel, for the torch of whichever python3 is on PATH, because Debian
# has no package of a torch that is new enough.
if(NOT DEFINED SKBUILD)
  install(FILES ${CMAKE_SOURCE_DIR}/scripts/wheel/finetune/__main__.py DESTINATION lib/finetune
          COMPONENT deb)
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/scripts/deb/finetune DESTINATION bin COMPONENT deb)
  install(FILES ${CMAKE_SOURCE_DIR}/scripts/deb/copyright DESTINATION share/doc/finetune
          COMPONENT deb)
  install(FILES ${CMAKE_SOURCE_DIR}/scripts/deb/lintian-overrides
          DESTINATION share/lintian/overrides RENAME finetune COMPONENT deb)

  string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_minor "${TorchWheel_VERSION}")
  set(CPACK_GENERATOR DEB)
  set(CPACK_COMPONENTS_ALL package share deb)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_PACKAGE_NAME finetune)
  set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}+torch${torch_minor}")
  set(CPACK_PACKAGE_CONTACT "The finetune authors <finetune@localhost.localdomain>")
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fine-tune and pretrain transformer language models")
  set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Trains with libtorch and resumes bit for bit after any interruption.
It runs with the torch ${torch_minor} of a Python environment: the python3 on PATH,
or the one that FINETUNE_PYTHON names.")
  # What the symbols of a build on Debian 12 or Ubuntu 22.04 need; libtorch comes from elsewhere.
  set(CPACK_DEBIAN_PACKAGE_DEPENDS
      "libc6 (>= 2.35), libstdc++6 (>= 12), libgcc-s1 (>= 4.2), python3 (>= 3.10)")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-venv")
  set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/scripts/deb/arrange.cmake)
  include(CPack)
endif()
