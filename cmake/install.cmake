# The shared library for other programs, and what finds it: a CMake package and a pkg-config file.
# The commands themselves link the rooms statically and don't need it.
include(CMakePackageConfigHelpers)

set(map ${CMAKE_CURRENT_LIST_DIR}/streamtrain.map)
add_library(streamtrain SHARED src/version.c)
target_link_libraries(streamtrain PRIVATE ooc_flags ooc_src)
# Only what the public functions reach is taken from the rooms: the trainer's libraries stay out.
file(STRINGS ${map} exported REGEX "^    ooc_")
foreach(line ${exported})
  string(REGEX MATCH "ooc_[a-z0-9_]+" symbol "${line}")
  target_link_options(streamtrain PRIVATE "LINKER:-u,${symbol}")
endforeach()
target_link_options(streamtrain PRIVATE "LINKER:--version-script,${map}" "LINKER:--as-needed")
set_target_properties(streamtrain PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${map})
target_include_directories(streamtrain INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/streamtrain>)

# The headers keep their places relative to each other, so that they include each other unchanged.
set(include_dir ${CMAKE_INSTALL_INCLUDEDIR}/streamtrain)
install(FILES src/streamtrain.h DESTINATION ${include_dir})
install(FILES base/err.h DESTINATION ${include_dir}/base)
install(FILES kernels/tile_view.h kernels/loss_hd.h DESTINATION ${include_dir}/kernels)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/streamtrain)
install(TARGETS streamtrain EXPORT streamtrain LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT streamtrain NAMESPACE streamtrain:: FILE streamtrain-config.cmake
  DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/streamtrain-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/streamtrain-config-version.cmake DESTINATION ${package_dir})
file(RELATIVE_PATH UP_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/streamtrain.pc.in ${PROJECT_BINARY_DIR}/streamtrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/streamtrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

file(GLOB man1 CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
file(GLOB man7 CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.7)
file(GLOB man3 CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.3)
install(FILES ${man1} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${man3} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
install(FILES ${man7} DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)
